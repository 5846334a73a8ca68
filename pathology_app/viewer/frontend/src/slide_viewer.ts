// One slide on the screen: OpenSeadragon below, layers, marks and tools on a canvas above it, and a panel beside both.
import OpenSeadragon from "openseadragon";
import { commandsOf } from "./commands";
import { DamagedAreas } from "./damaged";
import { box } from "./elements";
import { ExportMenu, save } from "./export/export_menu";
import { pictureOf } from "./export/view_picture";
import { FactsPanel } from "./facts_panel";
import { GamepadControl } from "./gamepad";
import type { Point } from "./geometry";
import { keepHeight } from "./height";
import { Hotspots } from "./hotspots";
import { Keys } from "./keys";
import { LayerPanel } from "./layers/layer_panel";
import { Layers } from "./layers/layers";
import { Legend, type LegendEntry } from "./legend";
import { AT, LAYERS, LinkState, OVERLAY, viewOf, viewText } from "./link_state";
import { Navigation } from "./navigation";
import { Picture } from "./picture";
import { ReadAhead } from "./read_ahead";
import { Readout } from "./readout";
import { magnificationText, ScaleBar } from "./scale_bar";
import { SidePanel } from "./side_panel";
import { Status } from "./status";
import { createTileSource } from "./tile_source";
import { TileStore } from "./tile_store";
import { Toolbar } from "./toolbar";
import { type ToolName, Toolbox } from "./tools/toolbox";
import type { ViewerData } from "./types";
import { optionsOf } from "./viewer_options";

export type Emit = (name: string, value: unknown) => void;

const DAMAGED_STORE = "Hatched in grey: damaged in the slide's store; gemslide verify says where.";
/** Presses no further apart than this are meant for one place. */
const SAME_PLACE_PX = 6;
const UNREAD_TILES = "Some tiles of this slide could not be read.";

export class SlideViewer {
  readonly osd: OpenSeadragon.Viewer;
  readonly navigation: Navigation;
  readonly hotspots: Hotspots;
  readonly layers: Layers;
  readonly layerPanel: LayerPanel;
  readonly toolbox: Toolbox;
  readonly toolbar = new Toolbar(this);
  readonly panel = new SidePanel(() => this.resized());
  readonly picture: Picture;
  readonly stage = box("stage");
  damaged: DamagedAreas | null = null;
  private readonly exportMenu = new ExportMenu(() => this.exportPng());
  private readonly facts = new FactsPanel();
  private readonly status = new Status();
  private readonly scaleBar = new ScaleBar();
  private readonly readout = new Readout();
  private readonly legend = new Legend();
  private readonly link: LinkState;
  private readonly tiles = new TileStore();
  private readonly readAhead: ReadAhead;
  private readonly keys: Keys;
  private readonly listeners = new AbortController();
  private lastGoto = 0;

  constructor(
    private readonly host: HTMLElement,
    public data: ViewerData,
    private emit: Emit,
  ) {
    this.link = new LinkState(data.slide.slide_id);
    const changed = (): void => this.layersChanged();
    this.layers = new Layers(this.link.read(OVERLAY), this.link.read(LAYERS), changed, (text) => this.status.note(text));
    this.layerPanel = new LayerPanel(this.layers);
    this.toolbox = new Toolbox(data.slide.mpp0, () => this.toolsChanged());
    this.panel.add("Layers", this.layerPanel.element);
    this.panel.add("Under the last click", this.facts.probe);
    this.panel.add("Slide", this.facts.slide, false);
    this.toolbar.extras.append(this.exportMenu.element);
    this.host.append(this.toolbar.element, box("body", this.stage, this.panel.element));
    this.osd = OpenSeadragon(optionsOf(this.stage, createTileSource(data.slide, this.tiles, { onHoles: () => this.status.note(DAMAGED_STORE) }), true));
    this.navigation = new Navigation(this.osd, data.slide);
    this.readAhead = new ReadAhead(this.osd, this.navigation, data.slide, this.tiles);
    this.hotspots = new Hotspots(this.navigation, this.status);
    this.keys = new Keys(commandsOf(this));
    this.host.append(this.keys.element);
    this.picture = new Picture(this.osd.canvas, this.stage);
    this.osd.canvas.setAttribute("role", "application");
    this.osd.canvas.setAttribute("aria-label", `Slide ${data.slide.slide_id}. Arrow keys move, plus and minus zoom, question mark lists all keys.`);
    this.stage.append(this.status.element, this.picture.probeText, this.scaleBar.element, this.readout.element, this.legend.element);
    this.listen();
    keepHeight(this.host, this.stage, this.listeners.signal);
    this.update(data, emit);
  }

  /** New data from Python for the same slide. */
  update(data: ViewerData, emit: Emit): void {
    this.data = data;
    this.emit = emit;
    this.layers.replace(data.layers);
    this.layerPanel.update();
    this.facts.update(data);
    this.exportMenu.update(data.exports);
    this.hotspots.replace(data.hotspots, this.layers.first?.style.threshold ?? 0);
    this.toolbar.show(data.hotspots.length > 0, this.toolbox.inHand);
    data.notes.forEach((note) => this.status.note(note));
    void this.loadDamaged();
    if (this.osd.isOpen()) {
      this.followGoto();
    }
    this.showLegend();
    this.draw();
  }

  /** Save a picture of the view. */
  exportPng(): void {
    save(this.viewPicture(), `${this.data.slide.slide_id}_view.png`);
  }

  private viewPicture(): HTMLCanvasElement {
    const { slide } = this.data;
    const um_per_px = slide.mpp0 / this.navigation.transform().scale;
    const { x, y } = this.middle();
    return pictureOf({
      sheets: [this.osd.drawer.canvas as HTMLCanvasElement, this.picture.canvas],
      ground: getComputedStyle(this.stage).backgroundColor,
      ratio: window.devicePixelRatio,
      um_per_px,
      legend: this.shownLayers(),
      said: [
        `Slide ${slide.slide_id}, ${magnificationText(um_per_px, slide.mpp0)}`,
        `Middle: ${Math.round(x * slide.mpp0)} µm right, ${Math.round(y * slide.mpp0)} µm down from the slide's corner`,
        ...this.layers.shown.map(({ info, style }) => `${info.group}: ${info.label}${info.is_mask ? "" : `, threshold ${style.threshold.toFixed(2)}`}`),
      ],
    });
  }

  destroy(): void {
    this.listeners.abort();
    this.readAhead.destroy();
    this.osd.destroy();
    this.host.remove();
  }

  showWhole(): void {
    this.hotspots.leave();
    this.navigation.showWhole();
  }

  magnify(magnification: number): void {
    this.navigation.magnify(magnification);
  }

  nextField(right: number, down: number): void {
    this.navigation.nextField(right, down);
    this.readAhead.head(right, down);
  }

  turn(degrees: number): void {
    this.navigation.turn(degrees);
    this.viewChanged();
  }

  mirror(): void {
    this.navigation.mirror();
    this.viewChanged();
  }

  setUpright(): void {
    this.navigation.setUpright();
    this.viewChanged();
  }

  nextHotspot(step: 1 | -1): void {
    this.hotspots.next(step);
    this.osd.forceRedraw();
  }

  shownHotspots(): number[] {
    return this.hotspots.shown(this.layers.first?.style.visible ?? false);
  }

  take(tool: ToolName): void {
    this.toolbox.take(tool, this.middle());
    this.osd.canvas.focus();
  }

  /** Enter: a point of the tool in hand, or what the model says, at the middle of the screen. */
  pressMiddle(): void {
    this.clicked(this.middle());
  }

  undoTool(): void {
    this.toolbox.undo();
  }

  clearTools(): void {
    this.toolbox.clear();
  }

  layToolDown(): void {
    this.toolbox.layDown();
  }

  togglePanel(): void {
    this.panel.toggle();
  }

  fullScreen(): void {
    void (document.fullscreenElement ? document.exitFullscreen() : this.host.requestFullscreen());
  }

  listKeys(): void {
    this.keys.showList();
  }

  /** The middle of the screen, in level-0 pixels. */
  middle(): Point {
    return this.navigation.transform().toSlide({ x: this.stage.clientWidth / 2, y: this.stage.clientHeight / 2 });
  }

  private listen(): void {
    const { signal } = this.listeners;
    this.osd.addHandler("open", () => this.opened());
    this.osd.addHandler("update-viewport", () => this.draw());
    this.osd.addHandler("animation-finish", () => this.viewChanged());
    this.osd.addHandler("canvas-click", (event) => {
      if (event.quick) {
        this.clicked(this.slidePoint(event.originalEvent as MouseEvent));
      }
    });
    this.osd.addHandler("canvas-double-click", (event) => {
      if (this.toolbox.inHand) {
        event.preventDefaultAction = true;
        this.toolbox.finish();
      }
    });
    // Its keys are ours (commands.ts).
    this.osd.addHandler("canvas-key", (event) => (event.preventDefaultAction = true));
    this.osd.addHandler("tile-load-failed", () => this.status.note(UNREAD_TILES));
    this.stage.addEventListener("pointermove", (event) => this.hovered(this.slidePoint(event)), { signal });
    this.stage.addEventListener("pointerleave", () => this.hovered(null), { signal });
    document.addEventListener("keydown", (event) => this.key(event), { signal, capture: true });
    new GamepadControl(
      {
        pan: (right, down) => this.navigation.pan(right, down, true),
        zoom: (steps) => this.navigation.zoom(steps),
        run: (key, shift = false) => this.keys.run(key, shift),
      },
      signal,
    );
  }

  /** Of a page that has been left, no key is taken: Streamlit does not say at once that it has. */
  private key(event: KeyboardEvent): void {
    if (this.host.isConnected) {
      this.keys.press(event, this.stage);
    }
  }

  private opened(): void {
    const view = viewOf(this.link.read(AT));
    if (view) {
      this.navigation.show(view);
    }
    this.followGoto();
  }

  private slidePoint(event: MouseEvent): Point {
    const { left, top } = this.stage.getBoundingClientRect();
    return this.navigation.transform().toSlide({ x: event.clientX - left - this.stage.clientLeft, y: event.clientY - top - this.stage.clientTop });
  }

  private clicked(at: Point): void {
    if (!this.toolbox.press(at, SAME_PLACE_PX / this.navigation.transform().scale)) {
      this.probe(at);
    }
  }

  private hovered(at: Point | null): void {
    const inside = at && this.isInside(at) ? at : null;
    this.toolbox.hover(inside);
    this.readout.show(inside, this.data.slide.mpp0, inside ? this.layers.valuesAt(inside) : []);
  }

  private isInside({ x, y }: Point): boolean {
    const { width_px, height_px } = this.data.slide.levels[0]!;
    return x >= 0 && y >= 0 && x < width_px && y < height_px;
  }

  private probe(at: Point): void {
    if (this.isInside(at)) {
      this.emit("click", { x_px0: Math.floor(at.x), y_px0: Math.floor(at.y) });
    }
  }

  private followGoto(): void {
    const { goto } = this.data;
    if (goto && goto.id !== this.lastGoto) {
      this.lastGoto = goto.id;
      this.hotspots.show(goto.hotspot);
      this.osd.forceRedraw();
    }
  }

  private async loadDamaged(): Promise<void> {
    const wanted = this.data.slide.damaged;
    if (!wanted) {
      this.damaged = null;
    } else if (this.damaged?.url !== wanted.url) {
      try {
        this.damaged = await DamagedAreas.load(wanted);
      } catch (error) {
        this.status.note(String(error));
      }
    }
    this.draw();
  }

  private viewChanged(): void {
    this.link.write(AT, viewText(this.navigation.view()));
  }

  private layersChanged(): void {
    this.link.write(OVERLAY, this.layers.first ? this.layers.firstText() : "");
    this.link.write(LAYERS, this.layers.othersText());
    this.hotspots.setThreshold(this.layers.first?.style.threshold ?? 0);
    this.showLegend();
    this.draw();
  }

  private toolsChanged(): void {
    this.toolbar.show(this.data.hotspots.length > 0, this.toolbox.inHand);
    this.status.advise(this.toolbox.hint());
    this.stage.classList.toggle("has-tool", this.toolbox.inHand !== null);
    this.draw();
  }

  private shownLayers(): LegendEntry[] {
    return this.layers.shown.map(({ info, style }) => ({ label: info.label, style, isMask: info.is_mask }));
  }

  private showLegend(): void {
    this.legend.show(this.shownLayers());
  }

  /** The stage is another size: OpenSeadragon looks for that itself, a moment later. */
  private resized(): void {
    this.osd.forceResize();
    this.draw();
  }

  private draw(): void {
    if (!this.osd.isOpen()) {
      return;
    }
    const transform = this.navigation.transform();
    const { slide, probe, hotspots } = this.data;
    this.picture.draw(({ context, ratio }) => {
      this.layers.draw(context, transform, ratio);
      this.damaged?.draw(context, transform, slide.levels[0]!, ratio);
      this.hotspots.look(transform, this.stage.clientWidth, this.stage.clientHeight);
      this.picture.drawMarks(transform, hotspots, this.shownHotspots(), this.hotspots.current, probe);
      this.toolbox.draw({ context, transform, mpp0: slide.mpp0 });
    });
    this.scaleBar.show(slide.mpp0 / transform.scale, slide.mpp0);
  }
}
