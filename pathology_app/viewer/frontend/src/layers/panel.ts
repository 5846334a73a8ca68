// Controls of the layers: visibility, opacity, threshold and colours.
import { box, checkbox, labelled, menu, type Slider, slider } from "../panel/elements";
import { PALETTE_NAMES } from "./palettes";
import type { Layer, Layers } from "./collection";
import { thresholdText } from "./values";

const STEP_MAX = 1;

export class LayerPanel {
  readonly element = document.createElement("div");
  private readonly sliders = new Map<string, Map<"opacity" | "threshold", Slider>>();
  private firstBox: HTMLInputElement | null = null;
  private shown = "";

  constructor(private readonly layers: Layers) {
    this.element.className = "layers";
  }

  /** Rebuild the controls if the set of layers has changed. */
  update(): void {
    const wanted = this.layers.all.map(({ info }) => `${info.id} ${info.label} ${info.is_first}`).join("\n");
    if (wanted === this.shown) {
      return;
    }
    this.shown = wanted;
    this.sliders.clear();
    this.firstBox = null;
    const { first, all } = this.layers;
    this.element.replaceChildren();
    if (first) {
      this.element.append(this.row(first));
    }
    const groups = new Map<string, Layer[]>();
    for (const layer of all.filter((layer) => layer !== first)) {
      groups.set(layer.info.group, [...(groups.get(layer.info.group) ?? []), layer]);
    }
    for (const [name, layers] of groups) {
      this.element.append(this.group(name, layers));
    }
    if (!all.length) {
      this.element.append(box("hint", "Nothing to show over this slide yet."));
    }
  }

  /** Move a slider of the layer changed last. */
  step(key: "opacity" | "threshold", by: number): void {
    const layer = this.layers.active;
    if (layer) {
      const value = Math.min(STEP_MAX, Math.max(0, layer.style[key] + by));
      this.sliders.get(layer.info.id)?.get(key)?.show(value);
      layer.style[key] = value;
      this.layers.restyled(layer);
    }
  }

  /** Show or hide the first layer. */
  toggleFirst(): void {
    const { first } = this.layers;
    if (first && this.firstBox) {
      this.firstBox.checked = !this.firstBox.checked;
      this.firstBox.dispatchEvent(new Event("change"));
    }
  }

  private group(name: string, layers: Layer[]): HTMLDetailsElement {
    const [details, summary] = [document.createElement("details"), document.createElement("summary")];
    summary.textContent = name;
    details.open = layers.some(({ style }) => style.visible);
    details.append(summary, ...layers.map((layer) => this.row(layer)));
    return details;
  }

  private row(layer: Layer): HTMLDivElement {
    const { info, style } = layer;
    const controls = this.controls(layer);
    controls.hidden = !style.visible;
    const shown = checkbox(info.label, `Show ${info.label}`, style.visible, (isOn) => {
      style.visible = isOn;
      controls.hidden = !isOn;
      this.layers.restyled(layer);
    });
    if (info.is_first) {
      shown.title = "Show or hide this layer (o)";
      this.firstBox = shown.querySelector("input");
    }
    return box("layer", shown, controls);
  }

  private controls(layer: Layer): HTMLDivElement {
    const { info, style } = layer;
    // The first layer's controls have plain names: they are used most.
    const named = (control: string): string => (info.is_first ? control : `${control} of ${info.label}`);
    const changed = (): void => this.layers.restyled(layer);
    const own = new Map<"opacity" | "threshold", Slider>();
    for (const key of ["threshold", "opacity"] as const) {
      const text = key === "threshold" ? "Threshold" : "Opacity";
      const shown = key === "threshold" && info.unit ? (value: number): string => thresholdText(value, { ...info, unit: "×" }) : undefined;
      const control = slider(text, named(text), (value) => {
        style[key] = value;
        changed();
      }, shown);
      control.show(style[key]);
      own.set(key, control);
    }
    this.sliders.set(info.id, own);
    const palette = menu(named("Colours"), PALETTE_NAMES, style.palette, (value) => {
      style.palette = value;
      changed();
    });
    const flag = (text: string, key: "smooth" | "outline"): HTMLLabelElement =>
      checkbox(text, named(text), style[key], (isOn) => {
        style[key] = isOn;
        changed();
      });
    const flags = box("flags", labelled("Colours", palette), flag("Outline", "outline"), flag("Smooth", "smooth"));
    const sliders = info.is_mask ? [own.get("opacity")!] : [...own.values()];
    return box("controls", ...sliders.map(({ element }) => element), flags);
  }
}
