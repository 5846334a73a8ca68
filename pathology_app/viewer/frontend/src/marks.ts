// Hotspot circles and the probed point, drawn over the overlay.
import type { Placement } from "./navigation";
import type { Hotspot, Probe } from "./types";

const MIN_RADIUS = 9;

function stroke(context: CanvasRenderingContext2D, path: Path2D, colour: string, width: number): void {
  context.strokeStyle = "rgba(0, 0, 0, 0.75)";
  context.lineWidth = width + 2;
  context.stroke(path);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke(path);
}

function label(context: CanvasRenderingContext2D, text: string, x: number, y: number): void {
  context.font = "600 12px system-ui, sans-serif";
  context.lineWidth = 3;
  context.strokeStyle = "rgba(0, 0, 0, 0.8)";
  context.strokeText(text, x, y);
  context.fillStyle = "#ffffff";
  context.fillText(text, x, y);
}

export function drawHotspots(
  context: CanvasRenderingContext2D,
  placement: Placement,
  hotspots: Hotspot[],
  shown: number[],
  current: number | null,
): void {
  for (const index of shown) {
    const hotspot = hotspots[index]!;
    const x = placement.left + hotspot.x_px0 * placement.scale;
    const y = placement.top + hotspot.y_px0 * placement.scale;
    const radius = Math.max(MIN_RADIUS, hotspot.radius_px0 * placement.scale);
    const circle = new Path2D();
    circle.arc(x, y, radius, 0, 2 * Math.PI);
    const isCurrent = index === current;
    stroke(context, circle, isCurrent ? "#00e5ff" : "#ffffff", isCurrent ? 3 : 1.5);
    label(context, String(index + 1), x + radius * 0.72 + 3, y - radius * 0.72 - 3);
  }
}

export function drawProbe(context: CanvasRenderingContext2D, placement: Placement, probe: Probe): void {
  const x = placement.left + probe.x_px0 * placement.scale;
  const y = placement.top + probe.y_px0 * placement.scale;
  const cross = new Path2D("M -11 0 H -3 M 3 0 H 11 M 0 -11 V -3 M 0 3 V 11");
  const placed = new Path2D();
  placed.addPath(cross, new DOMMatrix().translate(x, y));
  stroke(context, placed, "#ffea00", 2);
}
