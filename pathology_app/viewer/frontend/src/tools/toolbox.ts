// The active measuring tool. Escape puts it away; its drawings stay until they are cleared.
import type { Point } from "../view/geometry";
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
   * @param changed called when the drawings or the active tool have changed.
   */
  constructor(
    private readonly mpp0: number,
    private readonly changed: () => void,
  ) {}

  get inHand(): ToolName | null {
    return this.current;
  }

  /** Take a tool, or put it away if it is active. `middle` is the centre of the screen. */
  take(name: ToolName, middle: Point): void {
    if (name === "count") {
      this.takeCircle(middle);
    } else {
      this.current = this.current === name ? null : name;
    }
    this.changed();
  }

  /** Put the active tool away. */
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

  /** @returns whether a tool handled the click. */
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

  /** Cycle through 1 mm², 2 mm² and none; the circle is placed at the centre of the screen. */
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
