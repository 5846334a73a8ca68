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
