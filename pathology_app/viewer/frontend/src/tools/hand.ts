// Routes clicks to the active tool or, without one, to the probe of the model's result.
import type OpenSeadragon from "openseadragon";
import type { Annotations } from "../annotations/controller";
import type { Point } from "../view/geometry";
import type { Navigation } from "../view/navigation";
import type { Sight } from "./sight";

export interface Held {
  navigation: Navigation;
  sight: Sight;
  annotations: Annotations;
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
      if (event.quick && !annotations.pointing.press(sight.pointOf(pointer), pointer.shiftKey)) {
        this.probe(sight.pointOf(pointer));
      }
    });
    osd.addHandler("canvas-double-click", (event) => {
      if (annotations.pointing.finish()) {
        event.preventDefaultAction = true;
      }
    });
    stage.addEventListener("pointermove", (event) => this.hover(sight.pointOf(event)), { signal });
    stage.addEventListener("pointerleave", () => this.hover(null), { signal });
  }

  /** Enter: set a point of the active tool, or probe the model's result, at the centre of the screen. */
  pressMiddle(): void {
    const middle = this.held.sight.middle();
    if (!this.held.annotations.pointing.press(middle, false, true)) {
      this.probe(middle);
    }
  }

  /** @returns whether there is a tool in hand: then nothing else happens. */
  undo(): boolean {
    const { annotations } = this.held;
    return annotations.pointing.backspace() || annotations.inHand !== null;
  }

  delete(): void {
    this.held.annotations.pointing.delete();
  }

  layDown(): void {
    this.held.annotations.layDown();
  }

  private probe(at: Point): void {
    if (this.held.sight.isInside(at)) {
      this.host.probe(at);
    }
  }

  private hover(at: Point | null): void {
    const inside = at && this.held.sight.isInside(at) ? at : null;
    this.held.annotations.pointing.hover(at);
    this.host.hovered(inside);
  }
}
