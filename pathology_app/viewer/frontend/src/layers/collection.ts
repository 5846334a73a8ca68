// The layers over the slide, their visibility and their style. The first layer is the one of the model and class selected on
// the page; any others can be shown with it.
import type { Point, Transform } from "../view/geometry";
import type { LegendEntry } from "./legend";
import type { LayerInfo } from "../types";
import { Cells } from "./cells";
import { type LayerStyle, startOf, styleOf, styleText } from "./style";
import { valueText } from "./values";

export interface Layer {
  info: LayerInfo;
  style: LayerStyle;
  cells: Cells | null;
  isLoading: boolean;
}

export class Layers {
  all: Layer[] = [];
  /** The layer that keys act on. */
  active: Layer | null = null;
  /** Style of the first layer, whichever layer that is; null until there is one. */
  private firstStyle: LayerStyle | null;
  /** Threshold that the first layer's results were made with, until the user sets another. */
  private ownThreshold: number | null = null;
  private readonly wanted: Map<string, LayerStyle>;

  /**
   * @param first style of the first layer, from the link.
   * @param others styles of other layers, in the format of `othersText`.
   */
  constructor(
    first: string | null,
    others: string | null,
    private readonly changed: () => void,
    private readonly failed: (message: string) => void,
  ) {
    this.firstStyle = styleOf(first);
    this.wanted = othersOf(others);
  }

  get first(): Layer | null {
    return this.all.find(({ info }) => info.is_first) ?? null;
  }

  /** Replace the layers with those from Python. Styles are kept; the first layer's style passes to the new first layer. */
  replace(infos: LayerInfo[]): void {
    const before = new Map(this.all.map((layer) => [layer.info.id, layer]));
    this.all = infos.map((info) => {
      const known = before.get(info.id);
      const style = info.is_first ? this.styleOfFirst(info) : this.styleOf(info);
      if (known && known.info.url === info.url) {
        return Object.assign(known, { info, style });
      }
      return { info, style, cells: null, isLoading: false };
    });
    this.active = this.all.find(({ info }) => info.id === this.active?.info.id) ?? this.first;
    for (const layer of this.all) {
      void this.load(layer);
    }
  }

  /** Apply a change of a layer's style. */
  restyled(layer: Layer): void {
    this.active = layer;
    void this.load(layer);
    this.changed();
  }

  /** Apply styles in the link's format, as from a bookmark; layers that it does not name are hidden. */
  restore(first: string | null, others: string | null): void {
    const styles = othersOf(others);
    for (const layer of this.all) {
      const style = layer.info.is_first ? styleOf(first) : styles.get(layer.info.id);
      Object.assign(layer.style, style ?? { visible: false });
      void this.load(layer);
    }
    this.changed();
  }

  get shown(): Layer[] {
    return this.all.filter(({ style }) => style.visible);
  }

  get legend(): LegendEntry[] {
    return this.shown.map(({ info, style }) => ({ label: info.label, style, isMask: info.is_mask, scale: info, note: info.note }));
  }

  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number): void {
    // The first layer on top.
    for (const { cells, style } of [...this.shown].sort((a, b) => Number(a.info.is_first) - Number(b.info.is_first))) {
      cells?.draw(context, transform, ratio, style);
    }
  }

  /** Value of each visible layer at a point. */
  valuesAt(point: Point): string[] {
    return this.shown.flatMap(({ info, cells }) => {
      const value = cells?.valueAt(point) ?? null;
      return value === null ? [] : [info.is_mask ? (value > 0.5 ? info.label : "") : `${info.label} ${valueText(value, info)}`];
    }).filter(Boolean);
  }

  /** The first layer's style; "" for its starting style, which the link can omit. */
  firstText(): string {
    const { first } = this;
    const text = first ? styleText(first.style) : "";
    return first && text === styleText(startOf(first.info.style)) ? "" : text;
  }

  /** "id:style;id:style" of the other visible layers. */
  othersText(): string {
    const others = this.shown.filter(({ info }) => !info.is_first);
    return others.map(({ info, style }) => `${info.id}:${styleText(style)}`).join(";");
  }

  /** Another model's results start at their own threshold, unless the user has set one. */
  private styleOfFirst({ style }: LayerInfo): LayerStyle {
    if (!this.firstStyle) {
      this.firstStyle = startOf(style);
      this.ownThreshold = style.threshold;
    } else if (this.firstStyle.threshold === this.ownThreshold) {
      this.firstStyle.threshold = this.ownThreshold = style.threshold;
    }
    return this.firstStyle;
  }

  private styleOf(info: LayerInfo): LayerStyle {
    const known = this.wanted.get(info.id) ?? startOf(info.style);
    this.wanted.set(info.id, known);
    return known;
  }

  private async load(layer: Layer): Promise<void> {
    const { url, cell_px0 } = layer.info;
    if (layer.cells || layer.isLoading || !layer.style.visible) {
      return;
    }
    layer.isLoading = true;
    try {
      layer.cells = await Cells.load(url, cell_px0);
      this.changed();
    } catch (error) {
      this.failed(`${layer.info.label}: ${String(error)}`);
    } finally {
      layer.isLoading = false;
    }
  }
}

function othersOf(text: string | null): Map<string, LayerStyle> {
  const styles = new Map<string, LayerStyle>();
  for (const part of (text ?? "").split(";")) {
    const colon = part.lastIndexOf(":");
    const style = styleOf(part.slice(colon + 1));
    if (colon > 0 && style) {
      styles.set(part.slice(0, colon), style);
    }
  }
  return styles;
}
