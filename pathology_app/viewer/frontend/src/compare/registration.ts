// Registration of one slide to another, in micrometres on both: a turn and a shift, or any affine transform.
import type { Point } from "../view/geometry";
import type { View } from "../view/navigation";

/** Transform from the first view's slide to another view's, in µm: x' = a x + b y + x_um, y' = d x + e y + y_um. */
export interface Registration {
  a: number;
  b: number;
  x_um: number;
  d: number;
  e: number;
  y_um: number;
}

export const SAME: Registration = rigid(0, 0, 0);

/** Closer points do not determine the rotation. */
export const MIN_APART_UM = 20;
const MAX_NUMBER = 1e6;
/** Smallest and largest change of areas; a link from somebody else may hold any numbers. */
const AREAS = [1 / 16, 16] as const;

/** A clockwise turn about the corner, and a shift. */
export function rigid(degrees: number, x_um: number, y_um: number): Registration {
  const [cos, sin] = [Math.cos(rad(degrees)), Math.sin(rad(degrees))];
  return { a: cos, b: -sin, x_um, d: sin, e: cos, y_um };
}

/** From the six numbers that the server sends; null if they are no registration. */
export function registrationOfMatrix(numbers: number[]): Registration | null {
  const [a, b, x_um, d, e, y_um] = numbers as [number, number, number, number, number, number];
  const area = Math.abs(a * e - b * d);
  const isValid = numbers.length === 6 && numbers.every((value) => Math.abs(value) <= MAX_NUMBER) && area >= AREAS[0] && area <= AREAS[1];
  return isValid ? { a, b, x_um, d, e, y_um } : null;
}

export function moved({ a, b, x_um, d, e, y_um }: Registration, { x, y }: Point): Point {
  return { x: a * x + b * y + x_um, y: d * x + e * y + y_um };
}

export function back({ a, b, x_um, d, e, y_um }: Registration, at: Point): Point {
  const [x, y, area] = [at.x - x_um, at.y - y_um, a * e - b * d];
  return { x: (e * x - b * y) / area, y: (a * y - d * x) / area };
}

export function isMirrored({ a, b, d, e }: Registration): boolean {
  return a * e - b * d < 0;
}

/** Clockwise turn, 0 to 360; of a mirrored registration, the turn after mirroring left and right. */
export function degreesOf(registration: Registration): number {
  const { a, b, d, e } = registration;
  return upright((Math.atan2(isMirrored(registration) ? -d - b : d - b, isMirrored(registration) ? e - a : a + e) * 180) / Math.PI);
}

/** A view of the first slide in the coordinates of another, which then shows the same tissue the same way up. */
export function onOther(view: View, registration: Registration): View {
  const { x, y } = moved(registration, { x: view.x_um, y: view.y_um });
  const degrees = degreesOf(registration);
  return isMirrored(registration)
    ? { ...view, x_um: x, y_um: y, degrees: upright(-view.degrees - degrees), isMirrored: !view.isMirrored }
    : { ...view, x_um: x, y_um: y, degrees: upright(view.degrees - degrees) };
}

/** The reverse: a view of another slide in the coordinates of the first. */
export function onFirst(view: View, registration: Registration): View {
  const { x, y } = back(registration, { x: view.x_um, y: view.y_um });
  const degrees = view.degrees + degreesOf(registration);
  return isMirrored(registration)
    ? { ...view, x_um: x, y_um: y, degrees: upright(-degrees), isMirrored: !view.isMirrored }
    : { ...view, x_um: x, y_um: y, degrees: upright(degrees) };
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
  const degrees = upright((angle * 180) / Math.PI);
  const turned = moved(rigid(degrees, 0, 0), middle(from));
  const goal = middle(to);
  return rigid(degrees, goal.x - turned.x, goal.y - turned.y);
}

/** Residual in µm at each of the two points. */
export function missBy(from: [Point, Point], to: [Point, Point]): number {
  const lengths = [between(from), between(to)].map(({ x, y }) => Math.hypot(x, y));
  return Math.abs(lengths[0]! - lengths[1]!) / 2;
}

/** "degrees,x,y", as in a link; of other registrations than a turn and a shift, all six numbers. */
export function registrationText(registration: Registration): string {
  const { a, b, x_um, d, e, y_um } = registration;
  if (Math.abs(a - e) < 1e-9 && Math.abs(b + d) < 1e-9 && Math.abs(Math.hypot(a, d) - 1) < 1e-9) {
    return [degreesOf(registration).toFixed(2), x_um.toFixed(1), y_um.toFixed(1)].join(",");
  }
  return [a.toFixed(6), b.toFixed(6), x_um.toFixed(1), d.toFixed(6), e.toFixed(6), y_um.toFixed(1)].join(",");
}

export function registrationFrom(text: string): Registration | null {
  const numbers = text.split(",").map((part) => (part.trim() ? Number(part) : Number.NaN));
  if (numbers.length === 6) {
    return registrationOfMatrix(numbers);
  }
  const [degrees, x_um, y_um] = numbers as [number, number, number];
  return numbers.length === 3 && numbers.every((value) => Math.abs(value) <= MAX_NUMBER) ? rigid(degrees, x_um, y_um) : null;
}

function upright(degrees: number): number {
  return ((degrees % 360) + 360) % 360;
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
