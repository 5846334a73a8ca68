// Legend: a colour bar for every visible layer, hatched below the threshold.
import { box } from "../panel/elements";
import type { LayerStyle } from "./style";
import { codeOf, colourOf } from "./palettes";
import { type Scale, tickTexts } from "./values";

const STEPS = 240;

export interface LegendEntry {
  label: string;
  style: LayerStyle;
  isMask: boolean;
  scale: Scale;
  /** What the colours do not mean; "" if nothing needs to be said. */
  note: string;
}

export class Legend {
  readonly element = box("legend panel");

  show(entries: LegendEntry[]): void {
    this.element.hidden = entries.length === 0;
    const notes = new Set(entries.map(({ note }) => note).filter(Boolean));
    this.element.replaceChildren(...entries.map(entryOf), ...[...notes].map((note) => box("note", note)));
  }
}

function entryOf({ label, style, isMask, scale }: LegendEntry): HTMLElement {
  const title = box("title", label);
  if (isMask) {
    const swatch = box("swatch");
    swatch.style.background = `rgb(${colourOf(style.palette, 1).join(" ")})`;
    return box("entry mask", swatch, title);
  }
  const threshold = box("threshold");
  threshold.style.left = `${style.threshold * 100}%`;
  const ticks = box("ticks", ...tickTexts(scale).map((text) => box("tick", text)));
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
