// Legend: a colour bar for every visible layer, hatched below the threshold.
import { box } from "../panel/elements";
import type { LayerStyle } from "./style";
import { codeOf, colourOf } from "./palettes";

const STEPS = 240;

export interface LegendEntry {
  label: string;
  style: LayerStyle;
  isMask: boolean;
}

export class Legend {
  readonly element = box("legend panel");

  show(entries: LegendEntry[]): void {
    this.element.hidden = entries.length === 0;
    this.element.replaceChildren(...entries.map(entryOf));
  }
}

function entryOf({ label, style, isMask }: LegendEntry): HTMLElement {
  const title = box("title", label);
  if (isMask) {
    const swatch = box("swatch");
    swatch.style.background = `rgb(${colourOf(style.palette, 1).join(" ")})`;
    return box("entry mask", swatch, title);
  }
  const threshold = box("threshold");
  threshold.style.left = `${style.threshold * 100}%`;
  const ticks = box("ticks", ...["0", "0.5", "1"].map((text) => box("tick", text)));
  return box("entry", title, box("frame", barOf(style), threshold), ticks);
}

function barOf(style: LayerStyle): HTMLCanvasElement {
  const bar = document.createElement("canvas");
  [bar.width, bar.height] = [STEPS, 1];
  const context = bar.getContext("2d")!;
  for (let step = 0; step < STEPS; step++) {
    const probability = (step + 0.5) / STEPS;
    if (codeOf(probability) >= codeOf(style.threshold)) {
      context.fillStyle = `rgb(${colourOf(style.palette, probability).join(" ")})`;
      context.fillRect(step, 0, 1, 1);
    }
  }
  return bar;
}
