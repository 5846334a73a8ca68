// Ruler and area: what was measured stays until it is cleared.
import { areaOf, distance, lengthOf, type Point } from "../geometry";
import { areaText, lengthText } from "../scale_bar";
import { crosses, label, lineThrough, stroke } from "./pen";
import type { Drawing, Tool } from "./tool";

const COLOUR = "#ffe600";

/** A line, or a polygon, through points chosen one after another. */
export class Measure implements Tool {
  private readonly done: Point[][] = [];
  private begun: Point[] = [];
  private at: Point | null = null;

  constructor(private readonly kind: "length" | "area") {}

  get name(): string {
    return this.kind === "length" ? "Ruler" : "Area";
  }

  hint(): string {
    if (this.kind === "length") {
      return this.begun.length ? "Click where it ends; Backspace takes back." : "Ruler: click where it begins.";
    }
    return this.begun.length < 3 ? "Area: click its corners, one after another." : "Double click or press Enter twice to close it.";
  }

  press(at: Point, near_px0 = 0): void {
    const last = this.begun.at(-1);
    if (last && distance(last, at) <= near_px0) {
      this.finish();
      return;
    }
    this.begun.push(at);
    if (this.kind === "length" && this.begun.length === 2) {
      this.finish();
    }
  }

  hover(at: Point | null): void {
    this.at = at;
  }

  finish(): void {
    if (this.begun.length >= this.least) {
      this.done.push(this.begun);
      this.begun = [];
    }
  }

  undo(): boolean {
    const list: unknown[] = this.begun.length ? this.begun : this.done;
    return list.pop() !== undefined;
  }

  clear(): void {
    this.done.length = 0;
    this.begun = [];
  }

  draw({ context, transform, mpp0 }: Drawing): void {
    const begun = this.begun.length && this.at ? [...this.begun, this.at] : this.begun;
    for (const points of [...this.done, begun]) {
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

  /** "123 µm", or "0.532 mm² · 3.1 mm around". */
  text(points: Point[], mpp0: number): string {
    if (this.kind === "length") {
      return lengthText(lengthOf(points) * mpp0);
    }
    const around = lengthOf([...points, points[0]!]) * mpp0;
    return `${areaText(areaOf(points) * mpp0 ** 2)} · ${lengthText(around)} around`;
  }

  /** What was measured, for who asks. */
  results(mpp0: number): string[] {
    return this.done.map((points) => this.text(points, mpp0));
  }

  private get least(): number {
    return this.kind === "length" ? 2 : 3;
  }
}
