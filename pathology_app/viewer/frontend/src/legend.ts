// The colour bar: what each colour means, and which part is not drawn.
import type { OverlayStyle } from "./overlay";
import { codeOf, colourOf } from "./palettes";

const STEPS = 240;

export class Legend {
  readonly element = document.createElement("div");
  private readonly title = document.createElement("div");
  private readonly bar = document.createElement("canvas");
  private readonly threshold = document.createElement("div");

  constructor() {
    this.element.className = "legend panel";
    this.title.className = "title";
    [this.bar.width, this.bar.height] = [STEPS, 1];
    this.threshold.className = "threshold";
    const frame = document.createElement("div");
    frame.className = "frame";
    frame.append(this.bar, this.threshold);
    const ticks = document.createElement("div");
    ticks.className = "ticks";
    for (const text of ["0", "0.5", "1"]) {
      const tick = document.createElement("span");
      tick.textContent = text;
      ticks.append(tick);
    }
    this.element.append(this.title, frame, ticks);
  }

  show(label: string, style: OverlayStyle): void {
    this.title.textContent = label;
    this.threshold.style.left = `${style.threshold * 100}%`;
    const context = this.bar.getContext("2d")!;
    context.clearRect(0, 0, STEPS, 1);
    for (let step = 0; step < STEPS; step++) {
      const probability = (step + 0.5) / STEPS;
      if (codeOf(probability) >= codeOf(style.threshold)) {
        context.fillStyle = `rgb(${colourOf(style.palette, probability).join(" ")})`;
        context.fillRect(step, 0, 1, 1);
      }
    }
  }
}
