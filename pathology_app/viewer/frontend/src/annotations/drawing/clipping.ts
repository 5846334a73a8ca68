// Drawings cut at the slide's edges.
import { areaOf, type Point } from "../../view/geometry";
import type { Geometry } from "../types";
import { isArea, type Path, pathsOf, withPaths } from "./shapes";

/** The part of a geometry that lies on the slide; null if there is none. */
export function onSlide(geometry: Geometry, width_px0: number, height_px0: number): Geometry | null {
  const paths = pathsOf(geometry);
  const isInside = ({ x, y }: Point): boolean => x >= 0 && y >= 0 && x <= width_px0 && y <= height_px0;
  if (paths.every(({ points }) => points.every(isInside))) {
    return geometry;
  }
  const kept = paths.map((path) => ({ ...path, points: clipped(path, isInside, width_px0, height_px0) }));
  if (isArea(geometry)) {
    // Holes of an outline that is gone are gone, too.
    const parts = new Set(kept.filter(({ points, part }, index) => isOutline(kept, index) && isSolid(points) && part >= 0).map(({ part }) => part));
    const rings = kept.filter(({ points, part }) => parts.has(part) && isSolid(points));
    return rings.length ? withPaths(geometry, rings) : null;
  }
  const rest = kept.filter(({ points, isPoints }) => points.length >= (isPoints ? 1 : 2));
  return rest.length ? withPaths(geometry, rest) : null;
}

function isOutline(paths: Path[], index: number): boolean {
  return paths.findIndex(({ part }) => part === paths[index]!.part) === index;
}

function isSolid(points: Point[]): boolean {
  return points.length > 2 && areaOf(points) > 0;
}

function clipped({ points, isRing, isPoints }: Path, isInside: (point: Point) => boolean, width: number, height: number): Point[] {
  if (isRing) {
    return clippedToSlide(points, width, height);
  }
  if (isPoints) {
    return points.filter(isInside);
  }
  return clippedLine(points, width, height);
}

/** The longest stretch of a line that lies on the slide. */
function clippedLine(points: Point[], width: number, height: number): Point[] {
  const stretches: Point[][] = [[]];
  points.slice(1).forEach((to, index) => {
    const segment = clippedSegment(points[index]!, to, width, height);
    const last = stretches.at(-1)!;
    const end = last.at(-1);
    if (!segment) {
      stretches.push([]);
    } else if (end && end.x === segment[0].x && end.y === segment[0].y) {
      last.push(segment[1]);
    } else {
      stretches.push([...segment]);
    }
  });
  return stretches.reduce((longest, stretch) => (extent(stretch) > extent(longest) ? stretch : longest));
}

function extent(points: Point[]): number {
  return points.slice(1).reduce((sum, { x, y }, index) => sum + Math.hypot(x - points[index]!.x, y - points[index]!.y), 0);
}

/** After Liang and Barsky. */
function clippedSegment(from: Point, to: Point, width: number, height: number): [Point, Point] | null {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  let [start, end] = [0, 1];
  for (const [step, room] of [[-dx, from.x], [dx, width - from.x], [-dy, from.y], [dy, height - from.y]] as const) {
    if (step === 0 && room < 0) {
      return null;
    }
    if (step < 0) {
      start = Math.max(start, room / step);
    } else if (step > 0) {
      end = Math.min(end, room / step);
    }
  }
  const at = (share: number): Point => ({ x: from.x + share * dx, y: from.y + share * dy });
  return start < end ? [start === 0 ? from : at(start), end === 1 ? to : at(end)] : null;
}

/** The share of a polygon's area that lies on the slide. */
export function insideShare(points: Point[], width_px0: number, height_px0: number): number {
  const whole = signedArea(points);
  return whole === 0 ? 0 : Math.abs(signedArea(clippedToSlide(points, width_px0, height_px0)) / whole);
}

/** A polygon cut at the slide's edges, after Sutherland and Hodgman. Parts of it may be joined along an edge. */
export function clippedToSlide(points: Point[], width_px0: number, height_px0: number): Point[] {
  const edges: ((point: Point) => number)[] = [({ x }) => x, ({ x }) => width_px0 - x, ({ y }) => y, ({ y }) => height_px0 - y];
  return edges.reduce((ring, depth) => beyond(ring, depth), points);
}

function beyond(ring: Point[], depth: (point: Point) => number): Point[] {
  return ring.flatMap((from, index) => {
    const to = ring[(index + 1) % ring.length]!;
    const [here, there] = [depth(from), depth(to)];
    const kept = here >= 0 ? [from] : [];
    if (here >= 0 === there >= 0) {
      return kept;
    }
    const share = here / (here - there);
    return [...kept, { x: from.x + share * (to.x - from.x), y: from.y + share * (to.y - from.y) }];
  });
}

function signedArea(points: Point[]): number {
  return points.reduce((sum, { x, y }, index) => {
    const next = points[(index + 1) % points.length]!;
    return sum + (x * next.y - next.x * y) / 2;
  }, 0);
}
