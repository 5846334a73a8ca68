// Tools that draw new annotations. Points come from clicks, or from Enter at the centre of the screen.
import { distance, type Point, type Transform } from "../../view/geometry";
import { label } from "../../tools/pen";
import { sizeText } from "./sizes";
import { HALO_COLOURS } from "./halo";
import { ellipse, polygon, rectangle, simplified } from "./shapes";
import type { Geometry } from "../types";

export type DrawingName =
  | "point" | "line" | "rectangle" | "ellipse" | "polygon" | "freehand" | "split"
  | "ruler" | "area" | "arrow" | "text" | "count" | "brush" | "eraser" | "wand";

export const HINTS: Record<DrawingName, string> = {
  point: "Point: click to place it.",
  line: "Line: click its points; finish with a double click or Enter twice. Backspace removes the last point.",
  ruler: "Ruler: click the two ends; Backspace removes the first.",
  area: "Area: click the corners; close it with a double click, Enter twice or a click on the first corner.",
  arrow: "Arrow: click what it points at, then its other end.",
  text: "Text: click where it belongs.",
  count: "Count in an area: drag around it, or click its corners.",
  brush: "Brush: paint with the button held down; it adds to the selected area, or draws a new one.",
  eraser: "Eraser: paint over the part of the selected area to remove.",
  wand: "Wand: click to fill tissue of a similar stain; it adds to the selected area, or draws a new one.",
  rectangle: "Rectangle: drag, or click two corners.",
  ellipse: "Ellipse: drag, or click two corners of its bounding box.",
  polygon: "Polygon: click the corners; close it with a double click, Enter twice or a click on the first corner. Backspace removes the last corner.",
  freehand: "Freehand: draw with the button held down, or click the corners.",
  split: "Split: draw a line through the selected area, or click its points and double-click to finish.",
};
const LEAST_STEP_PX = 2;
/** Tolerance for simplifying a freehand line, in screen pixels. */
const SIMPLER_PX = 0.6;
const DRAGGED: readonly DrawingName[] = ["rectangle", "ellipse", "freehand", "split", "count", "brush", "eraser"];
const ONE_CLICK: readonly DrawingName[] = ["point", "text", "wand"];
const TWO_CLICKS: readonly DrawingName[] = ["rectangle", "ellipse", "ruler", "arrow"];
const LINES: readonly DrawingName[] = ["split", "line", "ruler", "arrow", "brush", "eraser"];

/** A drawing in progress with one tool. */
export class Sketch {
  private points: Point[] = [];
  private end: Point | null = null;
  private isDragged = false;

  /**
   * @param done called with the finished shape: for a split and the brush, with a line; for the wand, with a point.
   * @param brush_px radius of the brush on the screen; 0 for other tools.
   */
  constructor(
    readonly tool: DrawingName,
    private readonly mpp0: number,
    private readonly done: (geometry: Geometry) => void,
    private readonly brush_px: () => number = () => 0,
  ) {}

  get hasBegun(): boolean {
    return this.points.length > 0;
  }

  get takesDrags(): boolean {
    return DRAGGED.includes(this.tool);
  }

  press(at: Point, near_px0: number): void {
    if (ONE_CLICK.includes(this.tool)) {
      this.done({ type: "Point", coordinates: [at.x, at.y] });
      return;
    }
    const ends = [this.points.at(-1), this.points.length > 2 && !this.isLine ? this.points[0] : undefined];
    if (this.points.length && ends.some((end) => end && distance(end, at) <= near_px0)) {
      this.finish();
      return;
    }
    this.points.push(at);
    if (TWO_CLICKS.includes(this.tool) && this.points.length === 2) {
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
    const isTooShort = distance(this.points[0]!, this.points.at(-1)!) * scale < LEAST_STEP_PX && this.isBox;
    if ((this.points.length < 2 && !this.isBrush) || isTooShort) {
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
    const points = this.points;
    this.points = [];
    const [first, second] = points;
    if (this.isLine) {
      if (points.length > 1 || (this.isBrush && points.length)) {
        this.done({ type: "LineString", coordinates: points.map(({ x, y }) => [x, y]) });
      }
    } else if (this.isBox) {
      if (first && second && first.x !== second.x && first.y !== second.y) {
        this.done(this.tool === "ellipse" ? ellipse(first, second) : rectangle(first, second));
      }
    } else if (points.length > 2) {
      this.done(polygon(points));
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
    if (this.isBrush) {
      this.drawBrush(context, transform, path);
      return;
    }
    for (const [colour, width, dash] of [["#14181f", 4, []], ["#ffea00", 2, [6, 4]]] as const) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.setLineDash([...dash]);
      context.stroke(path);
    }
    context.setLineDash([]);
    this.drawSize(context, transform, points);
    for (const point of this.isDragged ? [] : this.points) {
      const { x, y } = transform.toScreen(point);
      context.fillStyle = "#ffea00";
      context.strokeStyle = "#14181f";
      context.lineWidth = 1;
      context.fillRect(x - 3, y - 3, 6, 6);
      context.strokeRect(x - 3, y - 3, 6, 6);
    }
  }

  /** Show the size of a measurement while it is drawn. */
  private drawSize(context: CanvasRenderingContext2D, transform: Transform, points: Point[]): void {
    const last = points.at(-1);
    if ((this.tool !== "ruler" && this.tool !== "area") || !last || points.length < (this.tool === "ruler" ? 2 : 3)) {
      return;
    }
    const geometry: Geometry = this.tool === "ruler" ? { type: "LineString", coordinates: points.map(({ x, y }) => [x, y]) } : polygon(points);
    const { x, y } = transform.toScreen(last);
    label(context, sizeText(geometry, this.mpp0), { x: x + 12, y: y - 8 });
  }

  private drawBrush(context: CanvasRenderingContext2D, transform: Transform, path: Path2D): void {
    [context.lineCap, context.lineJoin] = ["round", "round"];
    context.strokeStyle = this.tool === "brush" ? "rgba(255, 234, 0, 0.45)" : "rgba(20, 24, 31, 0.45)";
    context.lineWidth = 2 * this.brush_px();
    context.stroke(path);
    if (this.end) {
      const { x, y } = transform.toScreen(this.points.at(-1) ?? this.end);
      HALO_COLOURS.forEach((colour, index) => {
        context.beginPath();
        context.arc(x, y, this.brush_px() + index, 0, 2 * Math.PI);
        [context.strokeStyle, context.lineWidth] = [colour, 1.5];
        context.stroke();
      });
    }
  }

  private get isLine(): boolean {
    return LINES.includes(this.tool);
  }

  private get isBrush(): boolean {
    return this.tool === "brush" || this.tool === "eraser";
  }

  private get isBox(): boolean {
    return this.tool === "rectangle" || this.tool === "ellipse";
  }
}
