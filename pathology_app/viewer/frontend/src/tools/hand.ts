// Routes clicks to the active tool: one that draws, one that measures or, without a tool, the probe of the model's result.
import type OpenSeadragon from "openseadragon";
import type { Annotations } from "../annotations/controller";
import type { Point } from "../view/geometry";
import type { Navigation } from "../view/navigation";
import type { Sight } from "./sight";
import type { ToolName, Toolbox } from "./toolbox";

/** Largest distance between two presses that count as the same point. */
const SAME_PLACE_PX = 6;

export interface Held {
  navigation: Navigation;
  sight: Sight;
  toolbox: Toolbox;
  annotations: Annotations | null;
}

export interface HandHost {
  probe(at: Point): void;
  /** @param at null when the pointer is not over the slide. */
  hovered(at: Point | null): void;
}

export class Hand {
  constructor(
    private readonly held: Held,
    private readonly host: HandHost,
  ) {}

  /** Follow the pointer over a slide. */
  listen(osd: OpenSeadragon.Viewer, stage: HTMLElement, signal: AbortSignal): void {
    const { sight, annotations } = this.held;
    osd.addHandler("canvas-click", (event) => {
      const pointer = event.originalEvent as MouseEvent;
      if (event.quick && !annotations?.press(sight.pointOf(pointer), pointer.shiftKey)) {
        this.press(sight.pointOf(pointer));
      }
    });
    osd.addHandler("canvas-double-click", (event) => {
      if (this.finish()) {
        event.preventDefaultAction = true;
      }
    });
    stage.addEventListener("pointermove", (event) => this.hover(sight.pointOf(event)), { signal });
    stage.addEventListener("pointerleave", () => this.hover(null), { signal });
  }

  /** Take a measuring tool. */
  take(tool: ToolName): void {
    this.held.annotations?.putAway();
    this.held.toolbox.take(tool, this.held.sight.middle());
  }

  /** Enter: set a point of the active tool, or probe the model's result, at the centre of the screen. */
  pressMiddle(): void {
    const middle = this.held.sight.middle();
    if (!this.held.annotations?.press(middle, false, true)) {
      this.press(middle);
    }
  }

  undo(): void {
    if (!this.held.annotations?.backspace()) {
      this.held.toolbox.undo();
    }
  }

  clear(): void {
    if (!this.held.annotations?.delete()) {
      this.held.toolbox.clear();
    }
  }

  layDown(): void {
    if (!this.held.annotations?.layDown()) {
      this.held.toolbox.layDown();
    }
  }

  private press(at: Point): void {
    if (!this.held.toolbox.press(at, SAME_PLACE_PX / this.held.navigation.transform().scale) && this.held.sight.isInside(at)) {
      this.host.probe(at);
    }
  }

  /** @returns whether a tool is active. */
  private finish(): boolean {
    const { annotations, toolbox } = this.held;
    if (annotations?.finish()) {
      return true;
    }
    if (!toolbox.inHand) {
      return false;
    }
    toolbox.finish();
    return true;
  }

  private hover(at: Point | null): void {
    const inside = at && this.held.sight.isInside(at) ? at : null;
    this.held.toolbox.hover(inside);
    this.held.annotations?.hover(inside);
    this.host.hovered(inside);
  }
}
