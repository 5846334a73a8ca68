// The row of controls above the slide. It changes only the browser's own state: no rerun, no new tiles.
import { MAGNIFICATIONS } from "./commands";
import type { OverlayStyle } from "./overlay";
import { PALETTE_NAMES } from "./palettes";

export interface ToolbarActions {
  styleChanged(): void;
  showWhole(): void;
  magnify(magnification: number): void;
  nextHotspot(step: 1 | -1): void;
  fullScreen(): void;
  listKeys(): void;
}

const DEFAULT_STYLE: OverlayStyle = { visible: true, opacity: 0.4, threshold: 0.5, palette: PALETTE_NAMES[0]! };

function button(text: string, title: string, action: () => void): HTMLButtonElement {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.title = title;
  element.addEventListener("click", action);
  return element;
}

function group(name: string, ...children: (HTMLElement | string)[]): HTMLDivElement {
  const element = document.createElement("div");
  element.className = `group ${name}`;
  element.append(...children);
  return element;
}

function labelled(text: string, ...controls: HTMLElement[]): HTMLLabelElement {
  const element = document.createElement("label");
  element.append(text, ...controls);
  return element;
}

export class Toolbar {
  readonly element = document.createElement("div");
  readonly style: OverlayStyle;
  private readonly sliders = new Map<"opacity" | "threshold", HTMLInputElement>();
  private readonly checkbox = document.createElement("input");
  private readonly overlayControls: HTMLDivElement;
  private readonly hotspotControls: HTMLDivElement;

  constructor(
    private readonly actions: ToolbarActions,
    style: OverlayStyle | null,
  ) {
    this.style = style ?? { ...DEFAULT_STYLE };
    this.element.className = "toolbar";
    this.overlayControls = group(
      "overlay-controls",
      this.visibleBox(),
      this.slider("Opacity", "opacity"),
      this.slider("Threshold", "threshold"),
      this.paletteMenu(),
    );
    this.hotspotControls = group(
      "hotspot-controls",
      button("‹", "Previous hotspot (p)", () => actions.nextHotspot(-1)),
      "Hotspot",
      button("›", "Next hotspot (n)", () => actions.nextHotspot(1)),
    );
    const view = group(
      "view-controls",
      button("Fit", "Show the whole slide", () => actions.showWhole()),
      ...MAGNIFICATIONS.map((value) => button(`${value}×`, `Magnify ${value} times`, () => actions.magnify(value))),
      button("⤢", "Full screen (f); Esc ends it", () => actions.fullScreen()),
      button("?", "Keys (?)", () => actions.listKeys()),
    );
    this.element.append(this.overlayControls, this.hotspotControls, view);
  }

  show(hasOverlay: boolean, hasHotspots: boolean): void {
    this.overlayControls.hidden = !hasOverlay;
    this.hotspotControls.hidden = !hasHotspots;
  }

  toggleOverlay(): void {
    this.style.visible = !this.style.visible;
    this.checkbox.checked = this.style.visible;
    this.actions.styleChanged();
  }

  /** Move a slider by a step. */
  step(key: "opacity" | "threshold", by: number): void {
    const input = this.sliders.get(key)!;
    input.valueAsNumber = Math.min(1, Math.max(0, input.valueAsNumber + by));
    input.dispatchEvent(new Event("input"));
  }

  private visibleBox(): HTMLLabelElement {
    this.checkbox.type = "checkbox";
    this.checkbox.checked = this.style.visible;
    this.checkbox.addEventListener("change", () => this.toggleOverlay());
    const label = document.createElement("label");
    label.title = "Show or hide the prediction (o)";
    label.append(this.checkbox, "Prediction");
    return label;
  }

  private slider(text: string, key: "opacity" | "threshold"): HTMLLabelElement {
    const input = document.createElement("input");
    Object.assign(input, { type: "range", min: "0", max: "1", step: "0.01", value: String(this.style[key]) });
    input.setAttribute("aria-label", text);
    const output = document.createElement("output");
    output.value = this.style[key].toFixed(2);
    input.addEventListener("input", () => {
      this.style[key] = input.valueAsNumber;
      output.value = input.valueAsNumber.toFixed(2);
      this.actions.styleChanged();
    });
    this.sliders.set(key, input);
    return labelled(text, input, output);
  }

  private paletteMenu(): HTMLLabelElement {
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Colours");
    select.append(...PALETTE_NAMES.map((name) => new Option(name, name)));
    select.value = this.style.palette;
    select.addEventListener("change", () => {
      this.style.palette = select.value;
      this.actions.styleChanged();
    });
    select.title = "Colours";
    return labelled("", select);
  }
}
