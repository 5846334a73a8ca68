// The area that a stroke of a round brush covers, as one capsule for each of its segments.
import { distance, type Point } from "../../view/geometry";
import type { Geometry, Position } from "../types";
import { simplified } from "./shapes";

const ARC_CORNERS = 12;
/** Most capsules of one stroke; the server joins at most 500 areas at once. */
const MOST = 300;

/** @param radius_px0 of the brush. */
export function capsules(points: Point[], radius_px0: number): Geometry[] {
  let tolerance = radius_px0 / 10;
  let line = simplified(points, tolerance);
  while (line.length > MOST) {
    tolerance *= 2;
    line = simplified(points, tolerance);
  }
  const ends = line.filter((point, index) => index === 0 || distance(point, line[index - 1]!) > 0);
  const segments: [Point, Point][] = ends.length > 1 ? ends.slice(1).map((to, index) => [ends[index]!, to]) : [[ends[0]!, ends[0]!]];
  return segments.map(([from, to]) => capsule(from, to, radius_px0));
}

function capsule(from: Point, to: Point, radius: number): Geometry {
  const angle = Math.atan2(to.y - from.y, to.x - from.x);
  const arc = (centre: Point, start: number): Position[] =>
    Array.from({ length: ARC_CORNERS + 1 }, (_, index) => {
      const at = start + (Math.PI * index) / ARC_CORNERS;
      return [centre.x + radius * Math.cos(at), centre.y + radius * Math.sin(at)];
    });
  const ring = [...arc(to, angle - Math.PI / 2), ...arc(from, angle + Math.PI / 2)];
  return { type: "Polygon", coordinates: [[...ring, ring[0]!]] };
}
