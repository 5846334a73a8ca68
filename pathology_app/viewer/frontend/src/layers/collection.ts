// The layers over the slide: which there are, which are shown, and how. The first one is that of the model and class
// chosen on the page; any others can be shown with it.
import type { Point, Transform } from "../geometry";
import type { LegendEntry } from "../legend";
import type { LayerInfo } from "../types";
import { Cells } from "./cells";
import { DEFAULT_STYLE, type LayerStyle, styleOf, styleText } from "./style";

/** Of a mask there is no doubt about, its edge is what one wants to see. */
const MASK_STYLE: LayerStyle = { ...DEFAULT_STYLE, visible: false, outline: true, palette: "Green", opacity: 0.8 };
const OTHER_STYLE: LayerStyle = { ...DEFAULT_STYLE, visible: false };

export interface Layer {
  info: LayerInfo;
  style: LayerStyle;
  cells: Cells | null;
  isLoading: boolean;
}

export class Layers {
  all: Layer[] = [];
  /** The layer that keys change. */
  active: Layer | null = null;
  private readonly firstStyle: LayerStyle;
  private readonly wanted: Map<string, LayerStyle>;

  /**
   * @param first style of the first layer, as the link has it.
   * @param others styles of other layers, as `othersText` gave them.
   */
  constructor(
    first: string | null,
    others: string | null,
    private readonly changed: () => void,
    private readonly failed: (message: string) => void,
  ) {
    this.firstStyle = styleOf(first) ?? { ...DEFAULT_STYLE };
    this.wanted = othersOf(others);
  }

  get first(): Layer | null {
    return this.all.find(({ info }) => info.is_first) ?? null;
  }

  /** Take over what Python says there is. Styles stay; the first layer's goes to whichever is first. */
  replace(infos: LayerInfo[]): void {
    const before = new Map(this.all.map((layer) => [layer.info.id, layer]));
    this.all = infos.map((info) => {
      const known = before.get(info.id);
      const style = info.is_first ? this.firstStyle : this.styleOf(info);
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

  /** After a change of its style. */
  restyled(layer: Layer): void {
    this.active = layer;
    void this.load(layer);
    this.changed();
  }

  get shown(): Layer[] {
    return this.all.filter(({ style }) => style.visible);
  }

  get legend(): LegendEntry[] {
    return this.shown.map(({ info, style }) => ({ label: info.label, style, isMask: info.is_mask }));
  }

  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number): void {
    // The first one on top.
    for (const { cells, style } of [...this.shown].sort((a, b) => Number(a.info.is_first) - Number(b.info.is_first))) {
      cells?.draw(context, transform, ratio, style);
    }
  }

  /** What each layer shown says about a place. */
  valuesAt(point: Point): string[] {
    return this.shown.flatMap(({ info, cells }) => {
      const value = cells?.valueAt(point) ?? null;
      return value === null ? [] : [info.is_mask ? (value > 0.5 ? info.label : "") : `${info.label} ${value.toFixed(2)}`];
    }).filter(Boolean);
  }

  firstText(): string {
    return styleText(this.firstStyle);
  }

  /** "id:style;id:style" of the other layers that are shown. */
  othersText(): string {
    const others = this.shown.filter(({ info }) => !info.is_first);
    return others.map(({ info, style }) => `${info.id}:${styleText(style)}`).join(";");
  }

  private styleOf(info: LayerInfo): LayerStyle {
    const known = this.wanted.get(info.id) ?? { ...(info.is_mask ? MASK_STYLE : OTHER_STYLE) };
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
  const found = new Map<string, LayerStyle>();
  for (const part of (text ?? "").split(";")) {
    const colon = part.lastIndexOf(":");
    const style = styleOf(part.slice(colon + 1));
    if (colon > 0 && style) {
      found.set(part.slice(0, colon), style);
    }
  }
  return found;
}
