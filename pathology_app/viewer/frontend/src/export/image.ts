// The view as one image: the slide with everything over it, pixel for pixel as on the screen, and a strip below with scale
// bar, colour legend and caption.
import type { LayerStyle } from "../layers/style";
import type { LegendEntry } from "../layers/legend";
import { codeOf, colourOf } from "../layers/palettes";
import { rangeText } from "../layers/values";
import { lengthText, roundLength } from "../view/scale_bar";

const [MARGIN, LINE, GAP] = [14, 20, 18];
const [SCALE_PX, BAR_PX, BAR_HEIGHT] = [150, 180, 12];
const FONT = "13px system-ui, sans-serif";
const [PAPER, INK] = ["#ffffff", "#1f2430"];
const RESEARCH_USE = "Research use only. Not for diagnosis.";

export interface View {
  /** From bottom to top, all as large as the view, in device pixels. */
  sheets: HTMLCanvasElement[];
  /** Background colour outside the slide. */
  ground: string;
  /** Device pixels per CSS pixel. */
  ratio: number;
  um_per_px: number;
  legend: LegendEntry[];
  /** Lines of the caption. */
  caption: string[];
}

export function pictureOf({ sheets, ground, ratio, um_per_px, legend, caption }: View): HTMLCanvasElement {
  const { width, height } = sheets[0]!;
  const [wide, rows] = [width / ratio, Math.max(caption.length + 1, 2)];
  const bars = Math.ceil(legend.length / Math.max(1, Math.floor((wide - MARGIN) / (BAR_PX + GAP))));
  const strip = 2 * MARGIN + rows * LINE + bars * (LINE + BAR_HEIGHT + GAP);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height + Math.round(strip * ratio)];
  const context = canvas.getContext("2d")!;
  context.fillStyle = PAPER;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = ground;
  context.fillRect(0, 0, width, height);
  for (const sheet of sheets) {
    context.drawImage(sheet, 0, 0);
  }
  context.setTransform(ratio, 0, 0, ratio, 0, height);
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = INK;
  const length_um = roundLength(um_per_px * SCALE_PX);
  scaleBar(context, length_um / um_per_px, lengthText(length_um), wide - MARGIN, MARGIN);
  const left = Math.max(0, wide - 3 * MARGIN - SCALE_PX);
  [...caption, RESEARCH_USE].forEach((line, index) => {
    context.font = line === RESEARCH_USE ? `bold ${FONT}` : FONT;
    context.fillText(line, MARGIN, MARGIN + (index + 0.5) * LINE, left);
  });
  legend.forEach((entry, index) => {
    const perRow = Math.max(1, Math.floor((wide - MARGIN) / (BAR_PX + GAP)));
    const [column, row] = [index % perRow, Math.floor(index / perRow)];
    const top = MARGIN + rows * LINE + GAP / 2 + row * (LINE + BAR_HEIGHT + GAP);
    colourBar(context, entry, MARGIN + column * (BAR_PX + GAP), top);
  });
  return canvas;
}

/** A bar that ends at `right`, with its length above it. */
function scaleBar(context: CanvasRenderingContext2D, length: number, text: string, right: number, top: number): void {
  context.font = FONT;
  context.textAlign = "center";
  context.fillText(text, right - length / 2, top + LINE / 2);
  context.textAlign = "left";
  context.fillRect(right - length, top + LINE + 4, length, 2);
  context.fillRect(right - length, top + LINE - 2, 2, 8);
  context.fillRect(right - 2, top + LINE - 2, 2, 8);
}

function colourBar(context: CanvasRenderingContext2D, { label, style, isMask, scale }: LegendEntry, left: number, top: number): void {
  context.font = FONT;
  const text = isMask ? label : `${label}, ${rangeText(style.threshold, scale)}`;
  context.fillText(text, left, top + LINE / 2, BAR_PX);
  for (let x = 0; x < BAR_PX; x++) {
    const value = isMask ? 1 : (x + 0.5) / BAR_PX;
    if (isShown(style, value)) {
      context.fillStyle = `rgb(${colourOf(style.palette, value).join(" ")})`;
      context.fillRect(left + x, top + LINE, 1, BAR_HEIGHT);
    }
  }
  context.fillStyle = INK;
  context.strokeStyle = INK;
  context.lineWidth = 1;
  context.strokeRect(left - 0.5, top + LINE - 0.5, BAR_PX + 1, BAR_HEIGHT + 1);
}

function isShown(style: LayerStyle, value: number): boolean {
  return codeOf(value) >= codeOf(style.threshold);
}
