// Counting circles of a given area, and the part of them that lies on the slide.
import type { Point } from "../../view/geometry";
import type { Geometry } from "../types";

export const CIRCLE_SIZES_MM2 = [1, 2] as const;
export type CircleSize = (typeof CIRCLE_SIZES_MM2)[number];

const CORNERS = 128;

/** A circle of an exact area as a polygon, level-0 pixels. */
export function circleAround(centre: Point, area_mm2: number, mpp0: number): Geometry {
  // A polygon of n corners is smaller than the circle through them.
  const share = (CORNERS / (2 * Math.PI)) * Math.sin((2 * Math.PI) / CORNERS);
  const radius = (Math.sqrt(area_mm2 / Math.PI / share) * 1000) / mpp0;
  const ring = Array.from({ length: CORNERS }, (_, index): [number, number] => {
    const angle = (2 * Math.PI * index) / CORNERS;
    return [centre.x + radius * Math.cos(angle), centre.y + radius * Math.sin(angle)];
  });
  return { type: "Polygon", coordinates: [[...ring, ring[0]!]] };
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
