// One of several slides shown side by side.
import OpenSeadragon from "openseadragon";
import { DamagedLayer } from "../tiles/damaged";
import { box } from "../panel/elements";
import type { Point } from "../view/geometry";
import { STANDARD_IMAGE } from "../image/state";
import { type Layer, Layers } from "../layers/collection";
import { Legend } from "../layers/legend";
import { Navigation, type View } from "../view/navigation";
import { Picture } from "../marks/canvas";
import { ScaleBar } from "../view/scale_bar";
import { Status } from "../panel/status";
import { NO_COLOURS, TileColours } from "../tiles/colours";
import { createTileSource } from "../tiles/source";
import { TileStore } from "../tiles/store";
import { crosses, stroke } from "../tools/pen";
import type { ComparePaneData } from "../types";
import { openViewer } from "../tiles/osd_viewer";

const DAMAGED_STORE = "Grey hatching: damaged in the slide's store.";

export interface PaneEvents {
  /** The user moved the view. */
  moved(pane: ComparePane): void;
  /** A point was clicked; level-0 pixels. */
  clicked(pane: ComparePane, at: Point): void;
}

export class ComparePane {
  readonly element = box("pane");
  readonly navigation: Navigation;
  readonly layers: Layers;
  readonly osd: OpenSeadragon.Viewer;
  /** Position of the pointer in another view, transferred to this slide; level-0 pixels. */
  pointer: Point | null = null;
  /** Points clicked to align the slides. */
  anchors: Point[] = [];
  private readonly title = box("pane-title");
  private readonly stage = box("stage");
  private readonly picture: Picture;
  private readonly status = new Status();
  private readonly legend = new Legend();
  private readonly scaleBar = new ScaleBar();
  private readonly damaged = new DamagedLayer(() => this.draw(), (text) => this.status.note(text));

  constructor(
    public data: ComparePaneData,
    style: string | null,
    private readonly events: PaneEvents,
  ) {
    this.title.textContent = data.title;
    this.element.append(this.title, this.stage);
    this.layers = new Layers(style, null, () => this.restyled(), (text) => this.status.note(text));
    const colours = new TileColours(data.slide.colour_url, STANDARD_IMAGE, () => this.status.note(NO_COLOURS));
    this.osd = openViewer(this.stage, createTileSource(data.slide, new TileStore(colours), { onHoles: () => this.status.note(DAMAGED_STORE) }), false);
    colours.attach(this.osd);
    this.navigation = new Navigation(this.osd, data.slide);
    this.picture = new Picture(this.osd.canvas, this.stage);
    this.osd.canvas.setAttribute("role", "application");
    this.osd.canvas.setAttribute("aria-label", `${data.title}. Arrow keys move, plus and minus zoom.`);
    this.stage.append(this.status.element, this.scaleBar.element, this.legend.element);
    this.listen();
    this.layers.replace(data.layers);
    data.notes.forEach((note) => this.status.note(note));
    void this.damaged.load(data.slide.damaged);
  }

  /** New data for the same slide. */
  update(data: ComparePaneData): void {
    this.data = data;
    this.title.textContent = data.title;
    this.layers.replace(data.layers);
    this.restyled();
  }

  get isOpen(): boolean {
    return this.osd.isOpen();
  }

  get first(): Layer | null {
    return this.layers.first;
  }

  /** Go to a view without raising an event. */
  follow(view: View): void {
    this.navigation.show(view, false);
    this.osd.forceRedraw();
  }

  /** A point of the slide in µm. */
  inUm({ x, y }: Point): Point {
    const { mpp0 } = this.data.slide;
    return { x: x * mpp0, y: y * mpp0 };
  }

  destroy(): void {
    this.osd.destroy();
    this.element.remove();
  }

  draw(): void {
    if (!this.isOpen) {
      return;
    }
    const transform = this.navigation.transform();
    const { slide } = this.data;
    this.picture.draw(({ context, ratio }) => {
      this.layers.draw(context, transform, ratio);
      this.damaged.draw(context, transform, slide.levels[0]!, ratio);
      if (this.pointer) {
        stroke(context, crosses([transform.toScreen(this.pointer)], 9), "#ffea00", 1.5);
      }
      stroke(context, crosses(this.anchors.map((anchor) => transform.toScreen(anchor)), 12), "#00e5ff", 2.5);
    });
    this.scaleBar.show(slide.mpp0 / transform.scale, slide.mpp0);
  }

  private listen(): void {
    this.osd.addHandler("update-viewport", () => this.draw());
    // Only movements by the user: a view that follows another raises no event.
    for (const name of ["canvas-drag", "canvas-scroll", "canvas-pinch", "canvas-double-click"] as const) {
      this.osd.addHandler(name, () => this.events.moved(this));
    }
    this.osd.addHandler("canvas-key", (event) => (event.preventDefaultAction = true));
    this.osd.addHandler("canvas-click", (event) => {
      if (event.quick) {
        this.events.clicked(this, this.slidePoint(event.originalEvent as MouseEvent));
      }
    });
  }

  /** Point of the slide under the pointer, in level-0 pixels. */
  slidePoint(event: MouseEvent): Point {
    const { left, top } = this.stage.getBoundingClientRect();
    return this.navigation.transform().toSlide({ x: event.clientX - left - this.stage.clientLeft, y: event.clientY - top - this.stage.clientTop });
  }

  private restyled(): void {
    this.legend.show(this.layers.legend);
    this.draw();
  }
}
