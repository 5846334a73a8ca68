// Tools that draw new annotations. Points come from clicks, or from Enter at the centre of the screen.
import { distance, type Point, type Transform } from "../../view/geometry";
import { ellipse, polygon, rectangle, simplified } from "./shapes";
import type { Geometry, Kind } from "../types";

export type DrawingName = "point" | "rectangle" | "ellipse" | "polygon" | "freehand" | "split";

export const HINTS: Record<DrawingName, string> = {
  point: "Point: click to place it.",
  rectangle: "Rectangle: drag, or click two corners.",
  ellipse: "Ellipse: drag, or click two corners of its bounding box.",
  polygon: "Polygon: click the corners; close it with a double click, Enter twice or a click on the first corner. Backspace removes the last corner.",
  freehand: "Freehand: draw with the button held down, or click the corners.",
  split: "Split: draw a line through the selected area, or click its points and double-click to finish.",
};
const LEAST_STEP_PX = 2;
/** Tolerance for simplifying a freehand line, in screen pixels. */
const SIMPLER_PX = 0.6;
const DRAGGED: readonly DrawingName[] = ["rectangle", "ellipse", "freehand", "split"];

/** A drawing in progress with one tool. */
export class Sketch {
  private points: Point[] = [];
  private end: Point | null = null;
  private isDragged = false;

  /** @param done called with the finished shape; for a split, with a line. */
  constructor(
    readonly tool: DrawingName,
    private readonly done: (kind: Kind, geometry: Geometry) => void,
  ) {}

  get hasBegun(): boolean {
    return this.points.length > 0;
  }

  get takesDrags(): boolean {
    return DRAGGED.includes(this.tool);
  }

  press(at: Point, near_px0: number): void {
    if (this.tool === "point") {
      this.done("point", { type: "Point", coordinates: [at.x, at.y] });
      return;
    }
    const ends = [this.points.at(-1), this.points.length > 2 && this.tool !== "split" ? this.points[0] : undefined];
    if (this.points.length && ends.some((end) => end && distance(end, at) <= near_px0)) {
      this.finish();
      return;
    }
    this.points.push(at);
    if (this.isBox && this.points.length === 2) {
      this.finish();
    }
  }

  dragFrom(at: Point): void {
    [this.points, this.isDragged] = [[at], true];
  }

  dragTo(at: Point, scale: number): void {
    if (this.isBox) {
      this.points[1] = at;
    } else if (distance(this.points.at(-1)!, at) * scale >= LEAST_STEP_PX) {
      this.points.push(at);
    }
  }

  dragEnd(scale: number): void {
    if (!this.isDragged) {
      return;
    }
    this.isDragged = false;
    if (this.points.length < 2 || distance(this.points[0]!, this.points.at(-1)!) * scale < LEAST_STEP_PX && this.isBox) {
      this.points = []; // a click, which raises its own event
      return;
    }
    if (!this.isBox) {
      this.points = simplified(this.points, SIMPLER_PX / scale);
    }
    this.finish();
  }

  hover(at: Point | null): void {
    this.end = at;
  }

  /** Complete the drawing. */
  finish(): void {
    const [points, kind] = [this.points, this.tool];
    this.points = [];
    const [first, second] = points;
    if (kind === "split") {
      if (points.length > 1) {
        this.done("line", { type: "LineString", coordinates: points.map(({ x, y }) => [x, y]) });
      }
    } else if (this.isBox) {
      if (first && second && first.x !== second.x && first.y !== second.y) {
        this.done(kind as Kind, kind === "ellipse" ? ellipse(first, second) : rectangle(first, second));
      }
    } else if (points.length > 2) {
      this.done(kind as Kind, polygon(points));
    }
  }

  /** Remove the last point; false if there is none. */
  undo(): boolean {
    return this.points.pop() !== undefined;
  }

  clear(): void {
    this.points = [];
    this.isDragged = false;
  }

  draw(context: CanvasRenderingContext2D, transform: Transform): void {
    const end = this.isDragged ? [] : this.end && this.points.length ? [this.end] : [];
    let points = [...this.points, ...end];
    if (this.isBox && points.length > 1) {
      const shape = this.tool === "ellipse" ? ellipse(points[0]!, points[1]!) : rectangle(points[0]!, points[1]!);
      points = shape.type === "Polygon" ? shape.coordinates[0]!.map(([x, y]) => ({ x, y })) : points;
    }
    const path = new Path2D();
    points.map((point) => transform.toScreen(point)).forEach(({ x, y }, index) => (index ? path.lineTo(x, y) : path.moveTo(x, y)));
    for (const [colour, width, dash] of [["#14181f", 4, []], ["#ffea00", 2, [6, 4]]] as const) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.setLineDash([...dash]);
      context.stroke(path);
    }
    context.setLineDash([]);
    for (const point of this.isDragged ? [] : this.points) {
      const { x, y } = transform.toScreen(point);
      context.fillStyle = "#ffea00";
      context.strokeStyle = "#14181f";
      context.lineWidth = 1;
      context.fillRect(x - 3, y - 3, 6, 6);
      context.strokeRect(x - 3, y - 3, 6, 6);
    }
  }

  private get isBox(): boolean {
    return this.tool === "rectangle" || this.tool === "ellipse";
  }
}
