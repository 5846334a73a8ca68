// Rigid registration of one slide to another: rotation and translation without scaling, since both are in micrometres.
import type { Point } from "../view/geometry";

/** Transform from the first view's slide to another view's, in µm. */
export interface Registration {
  degrees: number;
  x_um: number;
  y_um: number;
}

export const SAME: Registration = { degrees: 0, x_um: 0, y_um: 0 };

/** Closer points do not determine the rotation. */
export const MIN_APART_UM = 20;

export function moved({ degrees, x_um, y_um }: Registration, { x, y }: Point): Point {
  const [cos, sin] = [Math.cos(rad(degrees)), Math.sin(rad(degrees))];
  return { x: cos * x - sin * y + x_um, y: sin * x + cos * y + y_um };
}

export function back(registration: Registration, at: Point): Point {
  const [cos, sin] = [Math.cos(rad(registration.degrees)), Math.sin(rad(registration.degrees))];
  const [x, y] = [at.x - registration.x_um, at.y - registration.y_um];
  return { x: cos * x + sin * y, y: -sin * x + cos * y };
}

/**
 * Registration from two points on one slide and the same two on another, all in µm. If the distances within the pairs
 * differ, as between sections, the residual is split evenly between the two points.
 * @returns null if the two points of a slide are too close together.
 */
export function registrationOf(from: [Point, Point], to: [Point, Point]): Registration | null {
  const [spanFrom, spanTo] = [between(from), between(to)];
  if (Math.min(Math.hypot(spanFrom.x, spanFrom.y), Math.hypot(spanTo.x, spanTo.y)) < MIN_APART_UM) {
    return null;
  }
  const angle = Math.atan2(spanTo.y, spanTo.x) - Math.atan2(spanFrom.y, spanFrom.x);
  const degrees = ((((angle * 180) / Math.PI) % 360) + 360) % 360;
  const turned = moved({ degrees, x_um: 0, y_um: 0 }, middle(from));
  const goal = middle(to);
  return { degrees, x_um: goal.x - turned.x, y_um: goal.y - turned.y };
}

/** Residual in µm at each of the two points. */
export function missBy(from: [Point, Point], to: [Point, Point]): number {
  const lengths = [between(from), between(to)].map(({ x, y }) => Math.hypot(x, y));
  return Math.abs(lengths[0]! - lengths[1]!) / 2;
}

/** "degrees,x,y", as in a link. */
export function registrationText({ degrees, x_um, y_um }: Registration): string {
  return [degrees.toFixed(2), x_um.toFixed(1), y_um.toFixed(1)].join(",");
}

export function registrationFrom(text: string): Registration | null {
  const [degrees, x_um, y_um, ...more] = text.split(",").map((part) => (part.trim() ? Number(part) : Number.NaN));
  const isValid = more.length === 0 && [degrees, x_um, y_um].every((value) => Math.abs(value!) <= 1e6);
  return isValid ? { degrees: degrees!, x_um: x_um!, y_um: y_um! } : null;
}

function between([first, second]: [Point, Point]): Point {
  return { x: second.x - first.x, y: second.y - first.y };
}

function middle([first, second]: [Point, Point]): Point {
  return { x: (first.x + second.x) / 2, y: (first.y + second.y) / 2 };
}

function rad(degrees: number): number {
  return (degrees * Math.PI) / 180;
}
