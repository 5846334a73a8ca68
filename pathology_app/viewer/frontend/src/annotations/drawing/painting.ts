// Painting of annotations in the colours of their classes.
import type { Transform } from "../../view/geometry";
import { halo, HALO_COLOURS } from "./halo";
import { pathsOf } from "./shapes";
import type { Geometry } from "../types";
import { CELL_PX, LINE, PER_PX, POINTS, type VectorTile } from "./vector_tile";

export interface Look {
  /** "#rrggbb" of a class; null if it is hidden. */
  colourOf(name: string | null): string | null;
  /** Whether the outline with this short id is drawn individually, or has been deleted. */
  isHidden(shortId: string): boolean;
}

const POINT_RADIUS = 4;
const FULL_TURN = 2 * Math.PI;

/** One path per colour with all outlines of a tile, in pixels of the tile. */
export function pathsByClass(tile: VectorTile, look: Look): Map<string, { lines: Path2D; points: Path2D }> {
  const paths = new Map<string, { lines: Path2D; points: Path2D }>();
  let [piece, corner] = [0, 0];
  tile.ids.forEach((id, outline) => {
    const colour = look.colourOf(tile.classes[tile.classOf[outline]!] ?? null);
    const isShown = colour !== null && !look.isHidden(id);
    if (isShown && !paths.has(colour)) {
      paths.set(colour, { lines: new Path2D(), points: new Path2D() });
    }
    for (const last = piece + tile.piecesOf[outline]!; piece < last; piece++) {
      const end = corner + tile.cornersOf[piece]!;
      if (isShown) {
        addPiece(paths.get(colour)!, tile, tile.kinds[piece]!, corner, end);
      }
      corner = end;
    }
  });
  return paths;
}

function addPiece(paths: { lines: Path2D; points: Path2D }, tile: VectorTile, kind: number, from: number, to: number): void {
  for (let corner = from; corner < to; corner++) {
    const [x, y] = [tile.corners[2 * corner]! / PER_PX, tile.corners[2 * corner + 1]! / PER_PX];
    if (kind === POINTS) {
      paths.points.moveTo(x + POINT_RADIUS, y);
      paths.points.arc(x, y, POINT_RADIUS, 0, FULL_TURN);
    } else if (corner === from) {
      paths.lines.moveTo(x, y);
    } else {
      paths.lines.lineTo(x, y);
    }
  }
  if (kind !== POINTS && kind !== LINE) {
    paths.lines.closePath();
  }
}

/** Paint a tile in its own pixels; `pixel` is the number of tile pixels per screen pixel. */
export function paintTile(context: CanvasRenderingContext2D, tile: VectorTile, look: Look, pixel: number): void {
  const { cells } = tile;
  for (let at = 0; at < cells.length; at += 4) {
    const colour = look.colourOf(tile.classes[cells[at + 2]!] ?? null);
    if (colour !== null) {
      context.globalAlpha = Math.min(1, 0.5 + 0.1 * cells[at + 3]!);
      context.fillStyle = colour;
      context.fillRect(cells[at]! * CELL_PX, cells[at + 1]! * CELL_PX, CELL_PX, CELL_PX);
    }
  }
  context.globalAlpha = 1;
  for (const [colour, { lines, points }] of pathsByClass(tile, look)) {
    paint(context, lines, colour, pixel);
    paintPoints(context, points, colour, pixel);
  }
}

function paint(context: CanvasRenderingContext2D, path: Path2D, colour: string, pixel: number): void {
  context.globalAlpha = 0.14;
  context.fillStyle = colour;
  context.fill(path, "evenodd");
  context.globalAlpha = 1;
  halo(context, path, colour, pixel);
}

/** Discs of points, with a halo of their own. */
function paintPoints(context: CanvasRenderingContext2D, points: Path2D, colour: string, pixel: number): void {
  HALO_COLOURS.forEach((under, index) => {
    context.strokeStyle = under;
    context.lineWidth = (3.4 - 1.6 * index) * pixel;
    context.stroke(points);
  });
  context.fillStyle = colour;
  context.fill(points);
}

/** Paint one annotation on the screen, in CSS pixels. */
export function paintShape(context: CanvasRenderingContext2D, geometry: Geometry, transform: Transform, colour: string, isSelected: boolean): void {
  const path = new Path2D();
  for (const { points, isRing, isPoints } of pathsOf(geometry)) {
    points.forEach((point, index) => {
      const { x, y } = transform.toScreen(point);
      if (isPoints) {
        path.moveTo(x + POINT_RADIUS, y);
        path.arc(x, y, POINT_RADIUS, 0, FULL_TURN);
      } else if (index === 0) {
        path.moveTo(x, y);
      } else {
        path.lineTo(x, y);
      }
    });
    if (isRing) {
      path.closePath();
    }
  }
  if (geometry.type.endsWith("LineString")) {
    halo(context, path, colour, isSelected ? 1.5 : 1);
  } else if (geometry.type.endsWith("Point")) {
    paintPoints(context, path, colour, isSelected ? 1.5 : 1);
  } else {
    paint(context, path, colour, isSelected ? 1.5 : 1);
  }
}

/** Paint the drag handles: squares on corners, small circles on the midpoints of sides. */
export function paintHandles(context: CanvasRenderingContext2D, geometry: Geometry, transform: Transform, active: { path: number; index: number } | null): void {
  pathsOf(geometry).forEach(({ points, isRing, isPoints }, path) =>
    points.forEach((point, index) => {
      const { x, y } = transform.toScreen(point);
      const next = points[index + 1] ?? (isRing ? points[0] : undefined);
      const isActive = active?.path === path && active.index === index;
      if (next && !isPoints) {
        const end = transform.toScreen(next);
        if (Math.hypot(end.x - x, end.y - y) > 28) {
          disc(context, (x + end.x) / 2, (y + end.y) / 2, 3);
        }
      }
      const half = isActive ? 6 : 4;
      context.fillStyle = isActive ? "#ffea00" : "#ffffff";
      context.strokeStyle = "#14181f";
      context.lineWidth = 1.4;
      context.fillRect(x - half, y - half, 2 * half, 2 * half);
      context.strokeRect(x - half, y - half, 2 * half, 2 * half);
    }),
  );
}

function disc(context: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  context.beginPath();
  context.arc(x, y, radius, 0, FULL_TURN);
  context.fillStyle = "#ffffff";
  context.strokeStyle = "#14181f";
  context.lineWidth = 1.2;
  context.fill();
  context.stroke();
}

/** Draw the cross at which Enter sets a point. */
export function drawCross(context: CanvasRenderingContext2D, x: number, y: number): void {
  const path = new Path2D(`M ${x - 16} ${y} H ${x - 4} M ${x + 4} ${y} H ${x + 16} M ${x} ${y - 16} V ${y - 4} M ${x} ${y + 4} V ${y + 16}`);
  for (const [colour, width] of [["#ffffff", 4], ["#14181f", 2]] as const) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.stroke(path);
  }
}
