// One slide on the screen: OpenSeadragon, a canvas above it with layers, marks and tools, and a panel beside both.
import type OpenSeadragon from "openseadragon";
import type { Annotations } from "./annotations/controller";
import { classesOf } from "./annotations/model_classes";
import { annotationsOn } from "./annotations/on_slide";
import { commandsOf } from "./commands";
import { AnswersPanel } from "./panel/answers";
import { DamagedLayer } from "./tiles/damaged";
import { box } from "./panel/elements";
import { ExportMenu } from "./export/menu";
import { exportView } from "./export/from_viewer";
import { Divider } from "./panel/divider";
import { FactsPanel } from "./panel/facts";
import { Focus } from "./controls/focused";
import { GamepadControl } from "./controls/gamepad";
import type { Point } from "./view/geometry";
import { Hand } from "./tools/hand";
import { keepHeight } from "./page/height";
import { Hotspots } from "./marks/hotspots";
import { ImageAdjust } from "./image/adjust";
import { imageOf, imageText } from "./image/state";
import { Keys } from "./controls/keys";
import { LayerPanel } from "./layers/panel";
import { Layers } from "./layers/collection";
import { Legend } from "./layers/legend";
import { AT, FOCUS, IMAGE, LAYERS, LinkState, OVERLAY, viewOf, viewText } from "./view/link_state";
import { Beside } from "./cases/beside";
import type { Prepared } from "./cases/ahead";
import { PageWait } from "./cases/page_wait";
import type { Neighbour, Tray } from "./cases/api";
import { Navigation } from "./view/navigation";
import { Picture } from "./marks/canvas";
import { beginWith, ReadAhead } from "./tiles/read_ahead";
import { Readout } from "./panel/readout";
import type { Coverage } from "./review/coverage";
import { coverageOn } from "./review/on_slide";
import { HotspotList } from "./review/hotspot_list";
import { ScaleBar } from "./view/scale_bar";
import { SidePanel } from "./panel/side";
import { Sight } from "./tools/sight";
import { Status } from "./panel/status";
import { NO_COLOURS, TileColours } from "./tiles/colours";
import { createTileSource } from "./tiles/source";
import { TileStore } from "./tiles/store";
import { type MeasuringTool, Toolbar } from "./tools/toolbar";
import type { ToolChoice } from "./annotations/annotating";
import type { Slide, ViewerData } from "./types";
import { openViewer } from "./tiles/osd_viewer";
import type { Viewer } from "./viewer";

export type Emit = (name: string, value: unknown) => void;

/** How the viewer was opened, and what opens the next. */
export interface Place {
  open(neighbour: Neighbour, viewer: SlideViewer): void;
  /** The slide's first tiles; null if they are not loaded yet. */
  prepared: Prepared | null;
  /** The list of the slide's case, if it is known already. */
  tray: Tray | null;
}

const DAMAGED_STORE = "Grey hatching: damaged in the slide's store; run gemslide verify to see where.";
/** Height that the page leaves below the slide (html/style.py). */
const BELOW_PX = 8;
/** Width of a window up to which the panel is below the slide (style.css). */
const NARROW_PX = 900;
const UNREAD_TILES = "Some tiles of this slide could not be read.";

export class SlideViewer implements Viewer {
  readonly osd: OpenSeadragon.Viewer;
  readonly navigation: Navigation;
  readonly sight: Sight;
  readonly hotspots: Hotspots;
  readonly layers: Layers;
  readonly layerPanel: LayerPanel;
  readonly toolbar = new Toolbar(this);
  readonly panel = new SidePanel(() => this.resized());
  readonly picture: Picture;
  readonly image: ImageAdjust;
  readonly annotations: Annotations;
  readonly hand: Hand;
  readonly stage = box("stage");
  readonly hotspotList: HotspotList;
  readonly beside: Beside | null;
  coverage: Coverage | null = null;
  private readonly caseSection: HTMLElement | null;
  private readonly answersSection: HTMLElement;
  private readonly hotspotSection: HTMLElement;
  private readonly coverageSection: HTMLElement;
  private readonly probeSection: HTMLElement;
  readonly damaged = new DamagedLayer(() => this.draw(), (text) => this.status.note(text));
  private readonly colours: TileColours;
  private readonly exportMenu = new ExportMenu(() => exportView(this));
  private readonly answers = new AnswersPanel();
  private readonly facts = new FactsPanel();
  private readonly status = new Status();
  private readonly scaleBar = new ScaleBar();
  private readonly readout = new Readout();
  private readonly legend = new Legend();
  private readonly link: LinkState;
  private readonly tiles: TileStore;
  readonly readAhead: ReadAhead;
  readonly focus: Focus | null;
  private readonly keys: Keys;
  private readonly listeners = new AbortController();
  private readonly divider = new Divider(this.panel.element, () => this.resized(), this.listeners.signal);
  private lastGoto = 0;
  /** Set the height again, after the viewer was moved. */
  readonly fit: () => void;
  /** What waits for the page to follow. */
  readonly page = new PageWait();
  /** Whether the first tile is on the screen. */
  private isDrawn = false;

  constructor(
    readonly host: HTMLElement,
    public data: ViewerData,
    public emit: Emit,
    { open, prepared, tray }: Place,
  ) {
    this.link = new LinkState(data.slide.slide_id, data.link_parameter);
    const changed = (): void => this.layersChanged();
    this.layers = new Layers(this.link.read(OVERLAY), this.link.read(LAYERS), changed, (text) => this.status.note(text));
    this.layerPanel = new LayerPanel(this.layers);
    this.hotspotList = new HotspotList({
      show: (index) => this.showHotspot(index),
      redraw: () => this.draw(),
      note: (text) => this.status.note(text),
      titled: (title) => this.panel.retitle("Hotspots", title),
    });
    this.beside = data.tray_url ? new Beside(data.slide.slide_id, data.tray_url, tray, this.listeners.signal) : null;
    this.caseSection = this.beside && this.panel.add("Case", this.beside.element);
    this.answersSection = this.panel.add("Slide-level predictions", this.answers.element);
    this.hotspotSection = this.panel.add("Hotspots", this.hotspotList.element);
    this.panel.add("Layers", this.layerPanel.element);
    this.probeSection = this.panel.add("At the last click", this.facts.probe);
    this.coverageSection = this.panel.add("Viewed areas", box("looked"));
    this.panel.add("Slide", this.facts.slide, false);
    this.image = new ImageAdjust(imageOf(this.link.read(IMAGE)), data.slide.colour_url !== null, () => this.imageChanged());
    this.panel.add("Image", this.image.element, false);
    this.colours = prepared?.colours ?? new TileColours(data.slide.colour_url, this.image.state, () => this.status.note(NO_COLOURS));
    this.tiles = prepared?.tiles ?? new TileStore(this.colours);
    this.status.imageChanged(this.image.changes);
    this.toolbar.extras.append(this.exportMenu.element);
    this.host.append(this.toolbar.element, box("body", this.stage, this.divider.element, this.panel.element));
    // An unassisted reading needs the slide and little else; so does a screen held upright, where the panel is below it.
    this.panel.element.hidden = data.hotspots_note === null || window.innerWidth <= NARROW_PX;
    this.probeSection.hidden = data.link_parameter !== undefined;
    this.host.classList.toggle("reading", data.link_parameter !== undefined);
    // The stage must have its size before OpenSeadragon fits the slide into it.
    this.toolbar.show(data.hotspots.length > 0, null);
    this.fit = keepHeight(this.host, this.stage, this.listeners.signal, BELOW_PX);
    this.divider.describe();
    beginWith(data.slide, this.tiles, viewOf(this.link.read(AT)), this.stage);
    this.osd = openViewer(this.stage, this.sourceOf(data.slide), true);
    [this.osd, this.osd.navigator].forEach((viewer) => this.colours.attach(viewer));
    this.navigation = new Navigation(this.osd, data.slide);
    this.sight = new Sight(this.navigation, this.stage, data.slide);
    this.focus = this.focusing();
    this.readAhead = new ReadAhead(this.osd, this.navigation, () => this.focus?.slideNow ?? data.slide, this.tiles, () => void this.beside?.loadAhead(this.stage));
    this.hotspots = new Hotspots(this.navigation, this.status);
    // In an unassisted reading, others' annotations would be assistance: only measuring is possible.
    const reading = data.link_parameter === undefined ? data.slide.slide_id : (this.link.read(data.link_parameter) ?? "");
    const scratch = data.hotspots_note === null ? reading : null;
    this.annotations = annotationsOn(this, scratch, this.listeners.signal);
    this.panel.add("Counts", this.annotations.countPanel.element, false);
    if (scratch === null) {
      this.panel.add("Annotations", this.annotations.panel.element, false);
      this.panel.add("Bookmarks", this.annotations.bookmarks.element, false);
      this.toolbar.extras.append(this.annotations.button);
    }
    this.stage.append(this.annotations.table.element);
    this.host.append(this.annotations.dialogs);
    this.hand = new Hand(this, { probe: (at) => this.probe(at), hovered: (at) => this.hovered(at) });
    this.keys = new Keys(commandsOf(this));
    this.host.append(this.keys.element);
    this.picture = new Picture(this.osd.canvas, this.stage);
    this.osd.canvas.setAttribute("role", "application");
    this.osd.canvas.setAttribute("aria-label", `Slide ${data.slide.slide_id}. Arrow keys move, plus and minus zoom, question mark lists all keys.`);
    this.stage.append(this.status.element, ...(this.focus ? [this.focus.element] : []), this.picture.probeText, box("below", this.scaleBar.element, this.readout.element, this.legend.element));
    this.listen();
    this.beside?.begin({ open: (neighbour) => open(neighbour, this), listed: (beside) => this.listed(beside), note: (text) => this.status.say(text) });
    this.update(data, emit);
  }

  /** Aborted when the viewer is destroyed. */
  get signal(): AbortSignal {
    return this.listeners.signal;
  }

  /** New data from Python for the same slide. */
  update(data: ViewerData, emit: Emit): void {
    this.data = data;
    this.emit = emit;
    this.layers.replace(data.layers);
    this.layerPanel.update();
    this.annotations.setModelClasses(classesOf(data.layers));
    this.answers.update(data.answers ?? []);
    this.answersSection.hidden = !data.answers?.length;
    this.facts.update(data);
    this.exportMenu.update(data.exports);
    this.hotspots.replace(data.hotspots, this.layers.first?.style.threshold ?? 0);
    this.hotspotList.replace(data.hotspots, data.hotspots_url, data.hotspots_note ?? "");
    this.hotspotSection.hidden = data.hotspots_note === null;
    this.coverageSection.hidden = data.coverage_url === null;
    this.panel.fold({ Hotspots: data.hotspots.length === 0, Layers: data.layers.length === 0, "At the last click": data.probe === null });
    this.toolbar.show(data.hotspots.length > 0, this.annotations.inHand);
    data.notes.forEach((note) => this.status.note(note));
    this.status.opening(data.is_partial ? data.slide.slide_id : null);
    void this.damaged.load(data.slide.damaged);
    if (this.osd.isOpen()) {
      this.followGoto();
      this.beginCoverage();
    }
    this.showLegend();
    this.draw();
    if (!data.is_partial) {
      // Not before: the image and the page come first.
      this.annotations.begin();
      void this.beside?.load();
      this.page.followed();
    }
  }

  destroy(): void {
    this.listeners.abort();
    this.readAhead.destroy();
    this.focus?.close();
    this.coverage?.destroy();
    this.hotspotList.destroy();
    this.osd.destroy();
    this.host.remove();
  }

  /**
   * Whether it shows a slide as this data does. If content becomes hidden (a reading), it does not: the viewer is built again,
   * so that no list, outline or tool remains.
   */
  shows(data: ViewerData): boolean {
    return this.data.slide.tile_url === data.slide.tile_url && this.isWithoutHelp === (data.hotspots_note === null);
  }

  /** Whether this is an unassisted reading: no model results and no annotations of others may be shown. */
  get isWithoutHelp(): boolean {
    return this.data.hotspots_note === null;
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

  nextSlide(step: 1 | -1): void {
    this.beside?.step(step);
  }

  nextHotspot(step: 1 | -1): void {
    this.hotspots.next(step);
    this.hotspotList.setCurrent(this.hotspots.current);
    this.osd.forceRedraw();
  }

  showHotspot(index: number): void {
    this.hotspots.show(index);
    this.hotspotList.setCurrent(index);
    this.osd.forceRedraw();
  }

  shownHotspots(): number[] {
    return this.hotspots.shown(this.layers.first?.style.visible ?? false);
  }

  take(tool: MeasuringTool): void {
    this.annotations.pressButton(tool);
    this.osd.canvas.focus();
  }

  toolChanged(tool: ToolChoice | null): void {
    this.toolbar.show(this.data.hotspots.length > 0, tool);
  }

  adjustImage(): void {
    this.panel.open("Image");
    this.image.focus();
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

  private listen(): void {
    const { signal } = this.listeners;
    this.osd.addHandler("open", () => this.opened());
    this.osd.addHandler("update-viewport", () => this.draw());
    this.osd.addHandler("animation-finish", () => this.viewChanged());
    // OpenSeadragon's own keys are replaced by commands.ts.
    this.osd.addHandler("canvas-key", (event) => (event.preventDefaultAction = true));
    this.osd.addOnceHandler("tile-loaded", () => requestAnimationFrame(() => (this.isDrawn = true)));
    this.osd.addHandler("tile-load-failed", () => this.status.note(UNREAD_TILES));
    this.hand.listen(this.osd, this.stage, signal);
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

  /** Ignore keys after the page has been left, which Streamlit does not report at once. */
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
    this.beginCoverage();
  }

  /** Start recording the areas viewed; not before the hotspots are known, which are seen or not by the same rule. */
  private beginCoverage(): void {
    if (this.data.coverage_url !== null && !this.coverage && !this.data.is_partial) {
      const host = { isDrawn: () => this.isDrawn, note: (text: string) => this.status.note(text) };
      this.coverage = coverageOn(this, this.data.coverage_url, host);
      this.coverageSection.querySelector(".looked")!.replaceChildren(this.coverage.element);
    }
  }

  /** The slides beside this one are known. */
  private listed({ title, slides }: Tray): void {
    this.caseSection!.hidden = slides.length < 2;
    this.panel.retitle("Case", title);
    this.toolbar.showSlides(slides.length > 1);
    if (this.readAhead.isDone) {
      void this.beside?.loadAhead(this.stage);
    }
  }

  private sourceOf(slide: Slide): OpenSeadragon.TileSource {
    return createTileSource(slide, this.tiles, { onHoles: () => this.status.note(DAMAGED_STORE) });
  }

  /** What shows the planes of a stack; null if there is one. */
  private focusing(): Focus | null {
    const { slide } = this.data;
    if (!slide.planes) {
      return null;
    }
    const stack = { ...slide, planes: slide.planes };
    return new Focus(this.osd, stack, this.link.read(FOCUS), (at) => this.sourceOf(at), ({ linkText }) => this.link.write(FOCUS, linkText));
  }

  private hovered(at: Point | null): void {
    this.readout.show(at, this.data.slide.mpp0, at ? this.layers.valuesAt(at) : []);
  }

  private probe(at: Point): void {
    this.emit("click", { x_px0: Math.floor(at.x), y_px0: Math.floor(at.y) });
  }

  private followGoto(): void {
    const { goto } = this.data;
    if (goto && goto.id !== this.lastGoto) {
      this.lastGoto = goto.id;
      this.showHotspot(goto.hotspot);
    }
  }

  private viewChanged(): void {
    this.status.say("");
    this.link.write(AT, viewText(this.navigation.view()));
  }

  private layersChanged(): void {
    this.link.write(OVERLAY, this.layers.first ? this.layers.firstText() : "");
    this.link.write(LAYERS, this.layers.othersText());
    this.hotspots.setThreshold(this.layers.first?.style.threshold ?? 0);
    this.showLegend();
    this.draw();
  }

  private imageChanged(): void {
    this.link.write(IMAGE, imageText(this.image.state));
    this.status.imageChanged(this.image.changes);
    this.colours.show(this.image.state);
  }

  /** Show the hint of the active tool. */
  advise(text: string): void {
    this.status.advise(text);
    this.stage.classList.toggle("has-tool", text !== "");
  }

  private showLegend(): void {
    this.legend.show(this.layers.legend);
  }

  /** Apply a new stage size at once; OpenSeadragon would notice it only a moment later. */
  private resized(): void {
    this.divider.describe();
    this.osd.forceResize();
    this.draw();
  }

  draw(): void {
    if (!this.osd.isOpen()) {
      return;
    }
    const transform = this.navigation.transform();
    const { slide, probe, hotspots } = this.data;
    this.picture.draw(({ context, ratio }) => {
      this.layers.draw(context, transform, ratio);
      this.damaged.draw(context, transform, slide.levels[0]!, ratio);
      this.annotations.draw(context, transform, ratio);
      this.coverage?.draw(context, transform, ratio);
      this.hotspots.look(transform, this.stage.clientWidth, this.stage.clientHeight);
      this.picture.drawMarks(transform, hotspots, this.shownHotspots(), this.hotspots.current, probe);
    });
    this.scaleBar.show(slide.mpp0 / transform.scale, slide.mpp0);
  }
}
