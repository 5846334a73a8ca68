// One of several slides shown side by side, with every tool that the viewer of one slide has.
import type OpenSeadragon from "openseadragon";
import type { ToolChoice } from "../annotations/annotating";
import type { Annotations } from "../annotations/controller";
import { classesOf } from "../annotations/model_classes";
import { annotationsIn, placed } from "../annotations/on_slide";
import { DamagedLayer } from "../tiles/damaged";
import { box, button, menu } from "../panel/elements";
import { Readout } from "../panel/readout";
import type { Point } from "../view/geometry";
import { STANDARD_IMAGE } from "../image/state";
import { type Layer, Layers } from "../layers/collection";
import { Legend } from "../layers/legend";
import { Navigation, type View } from "../view/navigation";
import { AT, viewOf, viewText } from "../view/link_state";
import { Picture } from "../marks/canvas";
import { ScaleBar } from "../view/scale_bar";
import { Status } from "../panel/status";
import { NO_COLOURS, TileColours } from "../tiles/colours";
import { createTileSource } from "../tiles/source";
import { TileStore } from "../tiles/store";
import { Hand } from "../tools/hand";
import { crosses, stroke } from "../tools/pen";
import { Sight } from "../tools/sight";
import type { ComparePaneData } from "../types";
import { openViewer } from "../tiles/osd_viewer";

const DAMAGED_STORE = "Grey hatching: damaged in the slide's store.";
const NO_MODEL = "no prediction";

export interface PaneEvents {
  /** The user moved the view. */
  moved(pane: ComparePane): void;
  /** A point was clicked without a tool; level-0 pixels. */
  clicked(pane: ComparePane, at: Point): void;
  /** The pane was pressed: keys and tools are for it now. */
  pressed(pane: ComparePane): void;
  isActive(pane: ComparePane): boolean;
  openPanel(title: string): void;
  toolChanged(pane: ComparePane, tool: ToolChoice | null): void;
  /** Another model is wanted, "" for none; null: remove the view. */
  wants(pane: ComparePane, model: string | null): void;
}

export class ComparePane {
  readonly element = box("pane");
  readonly stage = box("stage");
  readonly navigation: Navigation;
  readonly sight: Sight;
  readonly layers: Layers;
  readonly osd: OpenSeadragon.Viewer;
  readonly annotations: Annotations;
  readonly hand: Hand;
  /** Position of the pointer in another view, transferred to this slide; level-0 pixels. */
  pointer: Point | null = null;
  /** Points clicked to align the slides. */
  anchors: Point[] = [];
  private readonly title = box("pane-title");
  private readonly picture: Picture;
  private readonly status = new Status();
  private readonly legend = new Legend();
  private readonly scaleBar = new ScaleBar();
  private readonly readout = new Readout();
  private readonly damaged = new DamagedLayer(() => this.draw(), (text) => this.status.note(text));

  /** @param signal aborted when the view is destroyed. */
  constructor(
    public data: ComparePaneData,
    style: string | null,
    private readonly events: PaneEvents,
    signal: AbortSignal,
  ) {
    this.entitle();
    this.element.append(this.title, this.stage);
    this.layers = new Layers(style, null, () => this.restyled(), (text) => this.status.note(text));
    const colours = new TileColours(data.slide.colour_url, STANDARD_IMAGE, () => this.status.note(NO_COLOURS));
    this.osd = openViewer(this.stage, createTileSource(data.slide, new TileStore(colours), { onHoles: () => this.status.note(DAMAGED_STORE) }), false);
    colours.attach(this.osd);
    this.navigation = new Navigation(this.osd, data.slide);
    this.sight = new Sight(this.navigation, this.stage, data.slide);
    this.picture = new Picture(this.osd.canvas, this.stage);
    this.annotations = this.annotating(signal);
    this.hand = new Hand(this, { probe: (at) => this.events.clicked(this, at), hovered: (at) => this.hovered(at) });
    this.osd.canvas.setAttribute("role", "application");
    this.osd.canvas.setAttribute("aria-label", `${data.title}. Arrow keys move, plus and minus zoom, question mark lists all keys.`);
    this.stage.append(this.status.element, box("below", this.scaleBar.element, this.readout.element, this.legend.element), this.annotations.table.element);
    this.listen(signal);
    this.layers.replace(data.layers);
    this.annotations.setModelClasses(classesOf(data.layers));
    data.notes.forEach((note) => this.status.note(note));
    void this.damaged.load(data.slide.damaged);
    this.annotations.begin();
  }

  /** New data for the same slide. */
  update(data: ComparePaneData): void {
    this.data = data;
    this.entitle();
    this.layers.replace(data.layers);
    this.annotations.setModelClasses(classesOf(data.layers));
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
      this.annotations.draw(context, transform, ratio);
      if (this.pointer) {
        stroke(context, crosses([transform.toScreen(this.pointer)], 9), "#ffea00", 1.5);
      }
      stroke(context, crosses(this.anchors.map((anchor) => transform.toScreen(anchor)), 12), "#00e5ff", 2.5);
    });
    this.scaleBar.show(slide.mpp0 / transform.scale, slide.mpp0);
  }

  /** Draw the view's name, the choice of its model, and the button that removes it. */
  private entitle(): void {
    const { slide, models, model } = this.data;
    const name = box("name", slide.slide_id);
    const choice = models.length ? [menu(`Model over ${slide.slide_id}`, [...models, NO_MODEL], model || NO_MODEL, (value) => this.events.wants(this, value === NO_MODEL ? "" : value))] : [];
    this.title.replaceChildren(name, ...choice, button("✕", `Remove ${slide.slide_id} from these views`, () => this.events.wants(this, null)));
  }

  private annotating(signal: AbortSignal): Annotations {
    const { data, events } = this;
    const around = {
      ...placed(this),
      isActive: () => events.isActive(this),
      redraw: () => this.draw(),
      advise: (text: string) => {
        this.status.advise(text);
        this.stage.classList.toggle("has-tool", text !== "");
      },
      toolChanged: (tool: ToolChoice | null) => events.toolChanged(this, tool),
      openPanel: (title: string) => events.openPanel(title),
      view: () => new URLSearchParams({ [AT]: viewText(this.navigation.view()) }).toString(),
      showView: (text: string) => this.showView(viewOf(new URLSearchParams(text).get(AT))),
    };
    return annotationsIn(around, data.is_blinded ? data.slide.slide_id : null, signal);
  }

  private showView(view: View | null): void {
    if (view) {
      this.navigation.show(view);
      this.events.moved(this);
    }
  }

  private listen(signal: AbortSignal): void {
    this.osd.addHandler("update-viewport", () => this.draw());
    // Only movements by the user: a view that follows another raises no event. A drag that draws moves nothing.
    for (const name of ["canvas-drag", "canvas-scroll", "canvas-pinch", "canvas-double-click"] as const) {
      this.osd.addHandler(name, () => this.events.moved(this));
    }
    this.osd.addHandler("canvas-key", (event) => (event.preventDefaultAction = true));
    for (const kind of ["pointerdown", "focusin"] as const) {
      this.element.addEventListener(kind, () => this.events.pressed(this), { signal, capture: true });
    }
    this.hand.listen(this.osd, this.stage, signal);
  }

  private hovered(at: Point | null): void {
    this.readout.show(at, this.data.slide.mpp0, at ? this.layers.valuesAt(at) : []);
  }

  private restyled(): void {
    this.legend.show(this.layers.legend);
    this.draw();
  }
}
