// Test patterns of the calibration page: plain colour patches, and stripes of single screen pixels.
import { box, button, slider } from "../panel/elements";
import { whenResized } from "./screen";
import type { Patch } from "./values";

const STRIPES_PX = { width: 600, height: 150 };
const CARD_MM = 85.6;
const PX_PER_MM = 96 / 25.4;
const RULE_MM = 100;

/** Patches side by side; `ground` is the background colour. */
export function patchRow(name: string, patches: readonly Patch[], kind: string, ground?: string): HTMLElement {
  const row = box(`patches ${kind}`);
  row.setAttribute("role", "img");
  row.setAttribute("aria-label", `${name}: ${patches.map(({ label }) => label).join(", ")}`);
  for (const { label, colour } of patches) {
    const patch = box("patch");
    patch.style.background = colour;
    row.append(box("labelled", patch, box("value", label)));
  }
  if (ground) {
    row.style.background = ground;
    row.style.color = ground === "#000000" ? "#9a9a9a" : "#5c5c5c";
  }
  return row;
}

/** Stripes of one screen pixel, black and white, with a solid grey in the middle of each third. */
export function gammaStripes(greys: readonly Patch[]): HTMLElement {
  const canvas = document.createElement("canvas");
  const labels = box("thirds", ...greys.map(({ label }) => box("value", label)));
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Stripes with squares for gamma ${greys.map(({ label }) => label).join(", ")}`);
  const draw = (): void => {
    const ratio = window.devicePixelRatio;
    [canvas.width, canvas.height] = [Math.round(STRIPES_PX.width * ratio), Math.round(STRIPES_PX.height * ratio)];
    canvas.style.width = labels.style.width = `${canvas.width / ratio}px`;
    drawStripes(canvas, greys);
  };
  draw();
  whenResized(canvas, draw);
  return box("stripes", canvas, labels);
}

function drawStripes(canvas: HTMLCanvasElement, greys: readonly Patch[]): void {
  const { width, height } = canvas;
  const context = canvas.getContext("2d")!;
  context.fillStyle = "#000000";
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#ffffff";
  for (let y = 0; y < height; y += 2) {
    context.fillRect(0, y, width, 1);
  }
  const third = width / greys.length;
  greys.forEach(({ colour }, index) => {
    context.fillStyle = colour;
    context.fillRect(Math.round(third * (index + 0.25)), Math.round(height * 0.2), Math.round(third / 2), Math.round(height * 0.6));
  });
}

/** Buttons that fill the screen with one grey. */
export function fillButtons(): HTMLElement {
  const fields: [string, string][] = [["dark grey", "#333333"], ["middle grey", "#808080"], ["light grey", "#e6e6e6"]];
  const row = box("row");
  for (const [name, colour] of fields) {
    const field = box("filled");
    field.style.background = colour;
    const message = box("value", "");
    const fill = button(`Fill the screen: ${name}`, "Esc to leave", () => {
      field.requestFullscreen().catch(() => (message.textContent = "This browser does not let the page fill the screen: enlarge the window instead."));
    });
    row.append(box("labelled", fill, field, message));
  }
  return row;
}

/** A ruler that is 100 mm long once it has been fitted to an object of known size. */
export function rule(): HTMLElement {
  const [card, scale, message] = [box("card", `bank card: ${CARD_MM} mm`), box("rule"), box("value")];
  const fit = slider("Fit", "Size of the card and the ruler", (value) => show(value));
  Object.assign(fit.input, { min: "0.5", max: "2", step: "0.005" });
  for (let mm = 0; mm <= RULE_MM; mm += 5) {
    const mark = box(mm % 10 ? "mark" : "mark long", mm % 10 ? "" : String(mm));
    mark.style.left = `${mm}%`;
    scale.append(mark);
  }
  const show = (by: number): void => {
    const px_per_mm = PX_PER_MM * by;
    card.style.width = `${CARD_MM * px_per_mm}px`;
    scale.style.width = `${RULE_MM * px_per_mm}px`;
    message.textContent = `One page pixel is ${(1 / px_per_mm).toFixed(3)} mm; 100 mm is ${Math.round(RULE_MM * px_per_mm)} page pixels.`;
  };
  fit.show(1);
  show(1);
  return box("measure", fit.element, card, scale, message);
}
