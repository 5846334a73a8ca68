// A circle of 1 or 2 mm², as used to count mitoses, and the marks of counted objects.
import { distance, type Point } from "../view/geometry";
import { crosses, label, stroke } from "./pen";
import type { Drawing, Tool } from "./tool";

const COLOUR = "#00e5ff";

export class Counting implements Tool {
  readonly name = "Count";
  private marks: Point[] = [];

  /**
   * @param centre of the circle, level-0 pixels.
   */
  constructor(
    private centre: Point,
    public area_mm2: 1 | 2,
    private readonly mpp0: number,
  ) {}

  get radius_px0(): number {
    return (Math.sqrt(this.area_mm2 / Math.PI) * 1000) / this.mpp0;
  }

  /** Marks inside the circle. */
  get count(): number {
    return this.marks.filter((mark) => distance(mark, this.centre) <= this.radius_px0).length;
  }

  hint(): string {
    return `${this.area_mm2} mm²: ${this.count} counted, ${(this.count / this.area_mm2).toFixed(1)} per mm². Click to count; Backspace removes the last mark; c changes the area.`;
  }

  /** Move the circle; the marks stay where they are. */
  moveTo(centre: Point): void {
    this.centre = centre;
  }

  press(at: Point): void {
    this.marks.push(at);
  }

  hover(): void {}

  finish(): void {}

  undo(): boolean {
    return this.marks.pop() !== undefined;
  }

  clear(): void {
    this.marks = [];
  }

  draw({ context, transform }: Drawing): void {
    const { x, y } = transform.toScreen(this.centre);
    const radius = this.radius_px0 * transform.scale;
    const circle = new Path2D();
    circle.arc(x, y, radius, 0, 2 * Math.PI);
    stroke(context, circle, COLOUR, 2);
    stroke(context, crosses(this.marks.map((mark) => transform.toScreen(mark)), 7), COLOUR, 2);
    label(context, `${this.area_mm2} mm²: ${this.count}`, { x: x - 30, y: y - radius - 8 });
  }
}
