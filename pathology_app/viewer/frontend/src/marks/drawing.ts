// Draws hotspot circles and the probed point over the overlay.
import type { Transform } from "../view/geometry";
import { label, stroke } from "../tools/pen";
import type { Hotspot, Probe } from "../types";

const MIN_RADIUS = 9;

export function drawHotspots(
  context: CanvasRenderingContext2D,
  transform: Transform,
  hotspots: Hotspot[],
  shown: number[],
  current: number | null,
): void {
  for (const index of shown) {
    const hotspot = hotspots[index]!;
    const { x, y } = transform.toScreen({ x: hotspot.x_px0, y: hotspot.y_px0 });
    const radius = Math.max(MIN_RADIUS, hotspot.radius_px0 * transform.scale);
    const circle = new Path2D();
    circle.arc(x, y, radius, 0, 2 * Math.PI);
    const isCurrent = index === current;
    stroke(context, circle, isCurrent ? "#00e5ff" : "#ffffff", isCurrent ? 3 : 1.5);
    label(context, String(index + 1), { x: x + radius * 0.72 + 3, y: y - radius * 0.72 - 3 });
  }
}

export function drawProbe(context: CanvasRenderingContext2D, transform: Transform, probe: Probe): void {
  const { x, y } = transform.toScreen({ x: probe.x_px0 + 0.5, y: probe.y_px0 + 0.5 });
  const cross = new Path2D("M -11 0 H -3 M 3 0 H 11 M 0 -11 V -3 M 0 3 V 11");
  const path = new Path2D();
  path.addPath(cross, new DOMMatrix().translate(x, y));
  stroke(context, path, "#ffea00", 2);
}
