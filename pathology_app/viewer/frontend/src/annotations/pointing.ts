// What clicks and keys do at a place on the slide, with the tool that is in hand.
import type { Point } from "../view/geometry";
import type { Advice } from "./advice";
import type { Surroundings } from "./annotating";
import { idAt } from "./choosing";
import type { Counter } from "./counting/counter";
import type { Editor } from "./editor";
import type { AnnotationApi } from "./storage/api";
import type { Model } from "./storage/model";
import type { ToolInHand } from "./tool_in_hand";

/** Reach of a click, and of a finger. */
const [CLICK_PX, TOUCH_PX] = [6, 16];

export interface PointingHost {
  changed(): void;
  failed(error: unknown): void;
}

export class Pointing {
  /** Whether the last point was set by a key: the centre of the screen is then marked. */
  isByKey = false;
  private reach_px = CLICK_PX;

  constructor(
    private readonly around: Surroundings,
    private readonly api: AnnotationApi,
    private readonly model: Model,
    private readonly editor: Editor,
    private readonly counter: Counter,
    private readonly held: ToolInHand,
    private readonly advice: Advice,
    private readonly host: PointingHost,
    signal: AbortSignal,
  ) {
    const touched = ({ pointerType }: PointerEvent): void => {
      this.isByKey = false;
      this.reach_px = pointerType === "mouse" ? CLICK_PX : TOUCH_PX;
    };
    around.stage.addEventListener("pointerdown", touched, { signal, capture: true });
  }

  /** Handle a click, or Enter at the centre of the screen. @returns whether it was handled. */
  press(at: Point, isMore: boolean, isKey = false): boolean {
    const { tool, sketch } = this.held;
    if (tool === null) {
      return false;
    }
    this.isByKey = isKey;
    this.advice.forget();
    const near_px0 = this.reach_px / this.around.transform().scale;
    if (sketch) {
      sketch.press(at, near_px0);
      this.around.redraw();
    } else if (tool === "count") {
      this.counter.press(at);
      this.held.renew();
      this.host.changed();
    } else {
      void idAt(at, near_px0, this.api, this.model, this.editor.last).then(
        (id) => this.editor.choose(id, isMore),
        (error: unknown) => this.host.failed(error),
      );
    }
    return true;
  }

  finish(): boolean {
    this.held.sketch?.finish();
    this.around.redraw();
    return this.held.tool !== null;
  }

  hover(at: Point | null): void {
    if (this.held.tool === "count") {
      this.counter.hover(at);
      this.advice.show();
      this.around.redraw();
    }
    if (this.held.sketch) {
      this.held.sketch.hover(at);
      this.around.redraw();
    }
  }

  /** Backspace: remove the last point of the drawing, or else act as Delete. */
  backspace(): boolean {
    const isCounting = this.held.tool === "count";
    const isDone = this.held.sketch?.undo() || (isCounting && this.counter.undo());
    this.around.redraw();
    return isDone || isCounting || this.delete();
  }

  /** Delete the active corner, or else the selection. False if there is neither. */
  delete(): boolean {
    if (this.held.tool === null || !this.editor.chosen.length) {
      return false;
    }
    if (this.editor.corner) {
      this.editor.deleteCorner();
    } else {
      this.editor.delete();
    }
    return true;
  }
}
