// Shapes as paths of points, and operations for editing them. Level-0 pixels.
import { distance, type Point } from "../../view/geometry";
import type { Geometry, Position } from "../types";

/** One ring (without its closing point), one line, or a set of points. */
export interface Path {
  points: Point[];
  isRing: boolean;
  isPoints: boolean;
  /** Index of the polygon or line to which the path belongs. A polygon's first path is its outline, the others are holes. */
  part: number;
}

/** A corner, as the index of its path and of its point. */
export interface Corner {
  path: number;
  index: number;
}

const ELLIPSE_CORNERS = 64;

const pointOf = ([x, y]: Position): Point => ({ x, y });
const positionOf = ({ x, y }: Point): Position => [x, y];
const closed = (points: Point[]): Position[] => [...points, points[0]!].map(positionOf);

export function pathsOf(geometry: Geometry): Path[] {
  const line = (coordinates: Position[], part: number): Path => ({ points: coordinates.map(pointOf), isRing: false, isPoints: false, part });
  const rings = (polygon: Position[][], part: number): Path[] =>
    polygon.map((ring) => ({ points: ring.slice(0, -1).map(pointOf), isRing: true, isPoints: false, part }));
  switch (geometry.type) {
    case "Point":
      return [{ ...line([geometry.coordinates], 0), isPoints: true }];
    case "MultiPoint":
      return [{ ...line(geometry.coordinates, 0), isPoints: true }];
    case "LineString":
      return [line(geometry.coordinates, 0)];
    case "MultiLineString":
      return geometry.coordinates.map(line);
    case "Polygon":
      return rings(geometry.coordinates, 0);
    case "MultiPolygon":
      return geometry.coordinates.flatMap(rings);
  }
}

/** A geometry of the same type with other points. */
export function withPaths(geometry: Geometry, paths: Path[]): Geometry {
  switch (geometry.type) {
    case "Point":
      return { type: "Point", coordinates: positionOf(paths[0]!.points[0]!) };
    case "MultiPoint":
      return { type: "MultiPoint", coordinates: paths[0]!.points.map(positionOf) };
    case "LineString":
      return { type: "LineString", coordinates: paths[0]!.points.map(positionOf) };
    case "MultiLineString":
      return { type: "MultiLineString", coordinates: paths.map(({ points }) => points.map(positionOf)) };
    case "Polygon":
      return { type: "Polygon", coordinates: paths.map(({ points }) => closed(points)) };
    case "MultiPolygon": {
      const parts = new Map<number, Position[][]>();
      paths.forEach(({ points, part }) => parts.set(part, [...(parts.get(part) ?? []), closed(points)]));
      return { type: "MultiPolygon", coordinates: [...parts.values()] };
    }
  }
}

export function isArea(geometry: Geometry): boolean {
  return geometry.type.endsWith("Polygon");
}

export function polygon(points: Point[]): Geometry {
  return { type: "Polygon", coordinates: [closed(points)] };
}

export function rectangle(from: Point, to: Point): Geometry {
  return polygon([from, { x: to.x, y: from.y }, to, { x: from.x, y: to.y }]);
}

/** The ellipse inscribed in the rectangle between two corners. */
export function ellipse(from: Point, to: Point): Geometry {
  const [middle, half] = [{ x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 }, { x: (to.x - from.x) / 2, y: (to.y - from.y) / 2 }];
  const points = Array.from({ length: ELLIPSE_CORNERS }, (_, index) => {
    const angle = (2 * Math.PI * index) / ELLIPSE_CORNERS;
    return { x: middle.x + half.x * Math.cos(angle), y: middle.y + half.y * Math.sin(angle) };
  });
  return polygon(points);
}

export function boundsOfGeometry(geometry: Geometry): [number, number, number, number] {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { points } of pathsOf(geometry)) {
    for (const { x, y } of points) {
      [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
    }
  }
  return [left, top, right, bottom];
}

/** The geometry moved, but not beyond the slide's edges. */
export function moved(geometry: Geometry, by: Point, width_px0: number, height_px0: number): Geometry {
  const [left, top, right, bottom] = boundsOfGeometry(geometry);
  const x = Math.min(Math.max(by.x, -left), width_px0 - right);
  const y = Math.min(Math.max(by.y, -top), height_px0 - bottom);
  return mapped(geometry, (point) => ({ x: point.x + x, y: point.y + y }));
}

function mapped(geometry: Geometry, change: (point: Point) => Point): Geometry {
  return withPaths(geometry, pathsOf(geometry).map((path) => ({ ...path, points: path.points.map(change) })));
}

export function cornerAt(geometry: Geometry, corner: Corner): Point | undefined {
  return pathsOf(geometry)[corner.path]?.points[corner.index];
}

export function withCorner(geometry: Geometry, corner: Corner, to: Point): Geometry {
  return edited(geometry, corner.path, (points) => points.with(corner.index, to));
}

/** The geometry with a new corner after another one. */
export function withNewCorner(geometry: Geometry, behind: Corner, at: Point): Geometry {
  return edited(geometry, behind.path, (points) => points.toSpliced(behind.index + 1, 0, at));
}

/** The geometry without a corner; a hole with only three corners is removed. Null if nothing would be left. */
export function withoutCorner(geometry: Geometry, corner: Corner): Geometry | null {
  const paths = pathsOf(geometry);
  const path = paths[corner.path]!;
  const least = path.isRing ? 3 : path.isPoints ? 1 : 2;
  if (path.points.length > least) {
    return edited(geometry, corner.path, (points) => points.toSpliced(corner.index, 1));
  }
  const isHole = path.isRing && paths.findIndex(({ part }) => part === path.part) !== corner.path;
  const kept = paths.filter((other, index) => (isHole ? index !== corner.path : other.part !== path.part));
  return kept.length ? withPaths(geometry, kept) : null;
}

function edited(geometry: Geometry, path: number, change: (points: Point[]) => Point[]): Geometry {
  return withPaths(geometry, pathsOf(geometry).map((other, index) => (index === path ? { ...other, points: change(other.points) } : other)));
}

/** All corners, in the order in which keys step through them. */
export function cornersOf(geometry: Geometry): Corner[] {
  return pathsOf(geometry).flatMap(({ points }, path) => points.map((_, index) => ({ path, index })));
}

/** The corner nearest to a point, or null if none is within reach. */
export function nearestCorner(geometry: Geometry, to: Point, within: number): Corner | null {
  let [best, nearest]: [number, Corner | null] = [within, null];
  pathsOf(geometry).forEach(({ points }, path) =>
    points.forEach((point, index) => {
      const away = distance(point, to);
      if (away <= best) {
        [best, nearest] = [away, { path, index }];
      }
    }),
  );
  return nearest;
}

/** The side whose midpoint is nearest to a point, as the corner that it starts at. */
export function nearestMiddle(geometry: Geometry, to: Point, within: number): Corner | null {
  let [best, nearest]: [number, Corner | null] = [within, null];
  pathsOf(geometry).forEach(({ points, isRing, isPoints }, path) =>
    points.forEach((from, index) => {
      const next = points[index + 1] ?? (isRing ? points[0] : undefined);
      const away = next && !isPoints ? distance(middleOf(from, next), to) : Infinity;
      if (away <= best) {
        [best, nearest] = [away, { path, index }];
      }
    }),
  );
  return nearest;
}

export function middleOf(from: Point, to: Point): Point {
  return { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
}

/** Whether a point lies in an area, or within a distance of its outline, a line or a point. */
export function contains(geometry: Geometry, at: Point, within: number): boolean {
  const paths = pathsOf(geometry);
  if (isArea(geometry) && paths.filter(({ points }) => isIn(points, at)).length % 2 === 1) {
    return true;
  }
  return paths.some(({ points, isRing, isPoints }) =>
    points.some((from, index) => {
      const next = points[index + 1] ?? (isRing ? points[0] : undefined);
      return (isPoints || !next ? distance(from, at) : distanceToSide(from, next, at)) <= within;
    }),
  );
}

function isIn(ring: Point[], at: Point): boolean {
  let inside = false;
  ring.forEach((from, index) => {
    const to = ring[(index + 1) % ring.length]!;
    if (from.y > at.y !== to.y > at.y && at.x < ((to.x - from.x) * (at.y - from.y)) / (to.y - from.y) + from.x) {
      inside = !inside;
    }
  });
  return inside;
}

export function distanceToSide(from: Point, to: Point, at: Point): number {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length2 = dx * dx + dy * dy;
  const share = length2 === 0 ? 0 : Math.min(1, Math.max(0, ((at.x - from.x) * dx + (at.y - from.y) * dy) / length2));
  return distance(at, { x: from.x + share * dx, y: from.y + share * dy });
}

/** A line simplified by the Douglas-Peucker algorithm: no dropped point is further than `within` from the result. */
export function simplified(points: Point[], within: number): Point[] {
  const kept = new Set([0, points.length - 1]);
  const waiting: [number, number][] = [[0, points.length - 1]];
  for (let span = waiting.pop(); span; span = waiting.pop()) {
    const [first, last] = span;
    let [furthest, at] = [within, -1];
    for (let index = first + 1; index < last; index++) {
      const away = distanceToSide(points[first]!, points[last]!, points[index]!);
      if (away > furthest) {
        [furthest, at] = [away, index];
      }
    }
    if (at > 0) {
      kept.add(at);
      waiting.push([first, at], [at, last]);
    }
  }
  return points.filter((_, index) => kept.has(index));
}
