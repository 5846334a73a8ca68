// Lines and labels that are visible on light and dark backgrounds.
import type { Point } from "../view/geometry";

export function stroke(context: CanvasRenderingContext2D, path: Path2D, colour: string, width: number): void {
  context.strokeStyle = "rgba(0, 0, 0, 0.75)";
  context.lineWidth = width + 2;
  context.stroke(path);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke(path);
}

export function label(context: CanvasRenderingContext2D, text: string, { x, y }: Point): void {
  context.font = "600 13px system-ui, sans-serif";
  context.lineWidth = 3.5;
  context.lineJoin = "round";
  context.strokeStyle = "rgba(0, 0, 0, 0.85)";
  context.strokeText(text, x, y);
  context.fillStyle = "#ffffff";
  context.fillText(text, x, y);
}

/** Small crosses at points. */
export function crosses(points: Point[], size: number): Path2D {
  const path = new Path2D();
  for (const { x, y } of points) {
    path.moveTo(x - size, y);
    path.lineTo(x + size, y);
    path.moveTo(x, y - size);
    path.lineTo(x, y + size);
  }
  return path;
}
