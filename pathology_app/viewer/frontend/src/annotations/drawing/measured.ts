// Painting of measurements, arrows, texts and counts: with labels, over halos that show on any stain.
import { label } from "../../tools/pen";
import type { Point, Transform } from "../../view/geometry";
import { halo } from "./halo";
import { pathsOf } from "./shapes";
import type { Content, Geometry } from "../types";

const [TICK_PX, HEAD_PX] = [6, 13];

export function paintMeasured(
  context: CanvasRenderingContext2D,
  { kind, geometry }: Pick<Content, "kind" | "geometry">,
  transform: Transform,
  colour: string,
  isSelected: boolean,
  text: string,
): void {
  if (kind === "bookmark") {
    return; // listed in the panel
  }
  const paths = pathsOf(geometry).map(({ points, isRing }) => ({ points: points.map((point) => transform.toScreen(point)), isRing }));
  const path = new Path2D();
  for (const { points, isRing } of paths) {
    points.forEach(({ x, y }, index) => (index ? path.lineTo(x, y) : path.moveTo(x, y)));
    if (isRing) {
      path.closePath();
    }
  }
  const points = paths[0]?.points ?? [];
  if (kind === "ruler") {
    path.addPath(ticks(points));
  } else if (kind === "arrow") {
    path.addPath(head(points));
  } else if (kind === "text") {
    const { x, y } = points[0]!;
    path.arc(x, y, 3, 0, 2 * Math.PI);
  }
  halo(context, path, colour, isSelected ? 1.5 : 1);
  const at = labelPlace(kind, points, geometry, transform);
  if (text && at) {
    label(context, text, at);
  }
}

/** Short lines across both ends. */
function ticks(points: Point[]): Path2D {
  const path = new Path2D();
  const ends: [Point | undefined, Point | undefined][] = [[points[0], points[1]], [points.at(-1), points.at(-2)]];
  for (const [end, next] of ends) {
    const length = end && next ? Math.hypot(next.x - end.x, next.y - end.y) : 0;
    if (end && next && length > 0) {
      const [right, down] = [((end.y - next.y) / length) * TICK_PX, ((next.x - end.x) / length) * TICK_PX];
      path.moveTo(end.x - right, end.y - down);
      path.lineTo(end.x + right, end.y + down);
    }
  }
  return path;
}

/** The head of an arrow, at its first point: an arrow is drawn from what it points at. */
function head(points: Point[]): Path2D {
  const path = new Path2D();
  const [tip, tail] = points;
  if (tip && tail) {
    const angle = Math.atan2(tail.y - tip.y, tail.x - tip.x);
    for (const turn of [-0.45, 0.45]) {
      path.moveTo(tip.x, tip.y);
      path.lineTo(tip.x + HEAD_PX * Math.cos(angle + turn), tip.y + HEAD_PX * Math.sin(angle + turn));
    }
  }
  return path;
}

function labelPlace(kind: Content["kind"], points: Point[], geometry: Geometry, transform: Transform): Point | null {
  if (kind === "count" || kind === "area") {
    const corners = pathsOf(geometry)[0]!.points.map((point) => transform.toScreen(point));
    const top = corners.reduce((highest, corner) => (corner.y < highest.y ? corner : highest));
    return { x: top.x - 30, y: top.y - 8 };
  }
  const end = kind === "arrow" || kind === "text" ? points.at(-1) : points[Math.floor(points.length / 2)];
  return end ? { x: end.x + 10, y: end.y - 8 } : null;
}
