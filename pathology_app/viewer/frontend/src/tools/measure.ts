// Ruler and area: measurements stay until they are cleared.
import { areaOf, distance, lengthOf, type Point } from "../view/geometry";
import { areaText, lengthText } from "../view/scale_bar";
import { crosses, label, lineThrough, stroke } from "./pen";
import type { Drawing, Tool } from "./tool";

const COLOUR = "#ffe600";

/** A line or a polygon through points clicked one after another. */
export class Measure implements Tool {
  private readonly done: Point[][] = [];
  private current: Point[] = [];
  private at: Point | null = null;

  constructor(private readonly kind: "length" | "area") {}

  get name(): string {
    return this.kind === "length" ? "Ruler" : "Area";
  }

  hint(): string {
    if (this.kind === "length") {
      return this.current.length ? "Click the end point; Backspace removes the last point." : "Ruler: click the starting point.";
    }
    return this.current.length < 3 ? "Area: click the corners one after another." : "Double-click or press Enter twice to close it.";
  }

  press(at: Point, near_px0 = 0): void {
    const last = this.current.at(-1);
    if (last && distance(last, at) <= near_px0) {
      this.finish();
      return;
    }
    this.current.push(at);
    if (this.kind === "length" && this.current.length === 2) {
      this.finish();
    }
  }

  hover(at: Point | null): void {
    this.at = at;
  }

  finish(): void {
    if (this.current.length >= this.least) {
      this.done.push(this.current);
      this.current = [];
    }
  }

  undo(): boolean {
    const list: unknown[] = this.current.length ? this.current : this.done;
    return list.pop() !== undefined;
  }

  clear(): void {
    this.done.length = 0;
    this.current = [];
  }

  draw({ context, transform, mpp0 }: Drawing): void {
    const current = this.current.length && this.at ? [...this.current, this.at] : this.current;
    for (const points of [...this.done, current]) {
      const onScreen = points.map((point) => transform.toScreen(point));
      const isClosed = this.kind === "area" && points.length > 2;
      stroke(context, lineThrough(onScreen, isClosed), COLOUR, 2);
      stroke(context, crosses(onScreen, 5), COLOUR, 1.5);
      const end = onScreen.at(-1);
      if (end && points.length >= this.least) {
        label(context, this.text(points, mpp0), { x: end.x + 10, y: end.y - 8 });
      }
    }
  }

  /** "123 µm", or "0.532 mm² · perimeter 3.1 mm". */
  text(points: Point[], mpp0: number): string {
    if (this.kind === "length") {
      return lengthText(lengthOf(points) * mpp0);
    }
    const perimeter = lengthOf([...points, points[0]!]) * mpp0;
    return `${areaText(areaOf(points) * mpp0 ** 2)} · perimeter ${lengthText(perimeter)}`;
  }

  /** Texts of the finished measurements. */
  results(mpp0: number): string[] {
    return this.done.map((points) => this.text(points, mpp0));
  }

  private get least(): number {
    return this.kind === "length" ? 2 : 3;
  }
}
