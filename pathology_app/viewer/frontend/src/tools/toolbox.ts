// Which tool is in hand. Escape lays it down; what it has drawn stays until it is cleared.
import type { Point } from "../geometry";
import { Counting } from "./counting";
import { Measure } from "./measure";
import type { Drawing, Tool } from "./tool";

export type ToolName = "ruler" | "area" | "count";

export class Toolbox {
  readonly ruler = new Measure("length");
  readonly area = new Measure("area");
  counting: Counting | null = null;
  private current: ToolName | null = null;

  /**
   * @param changed what is drawn, or which tool is in hand, is another.
   */
  constructor(
    private readonly mpp0: number,
    private readonly changed: () => void,
  ) {}

  get inHand(): ToolName | null {
    return this.current;
  }

  /** Take a tool, or lay it down if it is in hand. `middle` is that of the screen. */
  take(name: ToolName, middle: Point): void {
    if (name === "count") {
      this.takeCircle(middle);
    } else {
      this.current = this.current === name ? null : name;
    }
    this.changed();
  }

  /** Also ends what a tool has begun. */
  layDown(): void {
    this.tool?.hover(null);
    this.current = null;
    this.changed();
  }

  clear(): void {
    for (const tool of [this.ruler, this.area, this.counting]) {
      tool?.clear();
    }
    this.counting = null;
    this.layDown();
  }

  hint(): string {
    return this.tool?.hint() ?? "";
  }

  /** Whether a tool took the click. */
  press(at: Point, near_px0: number): boolean {
    this.tool?.press(at, near_px0);
    this.changed();
    return this.tool !== null;
  }

  finish(): void {
    this.tool?.finish();
    this.changed();
  }

  hover(at: Point | null): void {
    if (this.tool) {
      this.tool.hover(at);
      this.changed();
    }
  }

  undo(): boolean {
    const isDone = this.tool?.undo() ?? false;
    this.changed();
    return isDone;
  }

  draw(drawing: Drawing): void {
    for (const tool of [this.ruler, this.area, this.counting]) {
      tool?.draw(drawing);
    }
  }

  /** First 1 mm², then 2 mm², then none; the circle comes to the middle of the screen. */
  private takeCircle(middle: Point): void {
    if (!this.counting) {
      this.counting = new Counting(middle, 1, this.mpp0);
      this.current = "count";
    } else if (this.current !== "count") {
      this.counting.moveTo(middle);
      this.current = "count";
    } else if (this.counting.area_mm2 === 1) {
      this.counting.area_mm2 = 2;
    } else {
      this.counting = null;
      this.current = null;
    }
  }

  private get tool(): Tool | null {
    const tools: Record<ToolName, Tool | null> = { ruler: this.ruler, area: this.area, count: this.counting };
    return this.current ? tools[this.current] : null;
  }
}
