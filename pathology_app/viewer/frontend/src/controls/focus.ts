// The focus: a slider beside the slide, two buttons and two keys that step through a stack's focal planes.
import { box, button } from "../panel/elements";
import type { PlanesInfo } from "../types";

/** "+1.5 µm" */
export function heightText(um: number): string {
  const number = String(Math.abs(um));
  return `${um > 0 ? "+" : um < 0 ? "−" : ""}${number} µm`;
}

/** Number of the plane at a height in a link; null if there is none. */
export function planeOf(text: string | null, { heights_um }: PlanesInfo): number | null {
  const um = text?.trim() ? Number(text) : Number.NaN;
  const plane = heights_um.indexOf(um);
  return plane < 0 ? null : plane;
}

export class FocusControl {
  readonly element: HTMLElement;
  private readonly input = document.createElement("input");
  private readonly output = document.createElement("output");

  /** @param choose shows a plane. */
  constructor(
    private readonly planes: PlanesInfo,
    private readonly choose: (plane: number) => void,
  ) {
    Object.assign(this.input, { type: "range", min: "0", max: String(planes.heights_um.length - 1), step: "1" });
    this.input.setAttribute("aria-label", "Focal plane");
    this.input.addEventListener("input", () => choose(this.input.valueAsNumber));
    this.element = box(
      "focus panel",
      box("focus-title", "Focus"),
      button("▲", "Focus up (Page Up)", () => this.step(1)),
      this.input,
      button("▼", "Focus down (Page Down)", () => this.step(-1)),
      this.output,
    );
  }

  step(by: 1 | -1): void {
    this.choose(this.input.valueAsNumber + by);
  }

  /** @param isLoading whether the plane is not on the screen yet. */
  show(plane: number, isLoading: boolean): void {
    this.input.valueAsNumber = plane;
    this.output.value = heightText(this.planes.heights_um[plane]!);
    this.input.setAttribute("aria-valuetext", this.output.value);
    this.element.classList.toggle("is-loading", isLoading);
  }
}
