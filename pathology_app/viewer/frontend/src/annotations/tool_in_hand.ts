// The tool that is in hand, and the drawing that it has begun.
import type { Surroundings, ToolChoice } from "./annotating";
import type { CountClasses } from "./counting/classes";
import type { Counter } from "./counting/counter";
import { type DrawingName, Sketch } from "./drawing/tools";
import type { Editor } from "./editor";
import type { Geometry } from "./types";

/** Tools that act on the selection. */
const OF_SELECTION: readonly ToolChoice[] = ["select", "brush", "eraser", "wand", "split"];
const MEASURING: readonly ToolChoice[] = ["ruler", "area", "count"];

export interface ToolHost {
  /** Whether a tool may be taken; if not, it says why. */
  mayTake(tool: ToolChoice): boolean;
  /** A drawing is finished. */
  done(tool: DrawingName, geometry: Geometry): void;
  brush_px(): number;
  changed(): void;
}

export class ToolInHand {
  tool: ToolChoice | null = null;
  sketch: Sketch | null = null;

  constructor(
    private readonly around: Surroundings,
    private readonly editor: Editor,
    private readonly counter: Counter,
    private readonly countClasses: CountClasses,
    private readonly host: ToolHost,
  ) {}

  get isDrawing(): boolean {
    return this.tool !== null && !MEASURING.includes(this.tool);
  }

  take(tool: ToolChoice): void {
    if (!this.host.mayTake(tool)) {
      return;
    }
    if (tool !== this.tool) {
      this.tool = tool;
      if (!OF_SELECTION.includes(tool)) {
        this.editor.choose(null);
      }
      if (this.isDrawing) {
        this.around.openPanel("Annotations");
      } else if (tool === "count") {
        this.around.openPanel("Counts");
      }
    }
    this.renew();
    this.host.changed();
  }

  toggleAnnotating(): void {
    if (this.isDrawing) {
      this.putAway();
    } else {
      this.take("select");
    }
  }

  /** A button of a tool: take it, or put it away. */
  pressButton(tool: ToolChoice): void {
    if (this.tool === tool) {
      this.putAway();
    } else if (tool === "count") {
      this.count();
    } else {
      this.take(tool);
    }
  }

  count(): void {
    if (this.tool === "count") {
      this.counter.again();
    } else if (this.counter.active === null) {
      this.counter.begin(this.counter.shape);
    }
    this.take("count");
  }

  chooseCounted(number: number): boolean {
    if (this.tool !== "count") {
      return false;
    }
    this.countClasses.choose(number);
    this.host.changed();
    return true;
  }

  putAway(): void {
    [this.tool, this.sketch] = [null, null];
    this.host.changed();
  }

  /** Begin an empty drawing, if the tool draws. */
  renew(): void {
    const { tool, counter } = this;
    const drawsNothing = tool === null || tool === "select" || (tool === "count" && (counter.active !== null || counter.shape !== "area"));
    this.sketch = drawsNothing ? null : new Sketch(tool, this.around.mpp0, (geometry) => this.host.done(tool, geometry), () => this.host.brush_px());
  }
}
