// Readout in the slide's lower left corner: pointer position in µm and the values of the visible layers there.
import { box } from "./elements";
import type { Point } from "../view/geometry";

export class Readout {
  readonly element = box("readout panel");

  constructor() {
    this.element.hidden = true;
  }

  /** @param at level-0 pixels; null when the pointer is not over the slide. */
  show(at: Point | null, mpp0: number, values: string[]): void {
    this.element.hidden = at === null;
    if (at) {
      const place = `${(at.x * mpp0).toFixed(0)} µm right, ${(at.y * mpp0).toFixed(0)} µm down`;
      this.element.textContent = [place, ...values].join(" · ");
    }
  }
}
