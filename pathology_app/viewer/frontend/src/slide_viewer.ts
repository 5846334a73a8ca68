// One slide on the screen: OpenSeadragon below, the prediction and the marks on a canvas above it.
import OpenSeadragon from "openseadragon";
import { commandsOf } from "./commands";
import { DamagedAreas } from "./damaged";
import { Hotspots } from "./hotspots";
import { Keys } from "./keys";
import { Legend } from "./legend";
import { AT, LinkState, OVERLAY, styleOf, styleText, viewOf, viewText } from "./link_state";
import { drawHotspots, drawProbe } from "./marks";
import { Navigation, type Placement } from "./navigation";
import { Overlay } from "./overlay";
import { ScaleBar } from "./scale_bar";
import { Status } from "./status";
import { createTileSource } from "./tile_source";
import { Toolbar } from "./toolbar";
import type { ViewerData } from "./types";

export type Emit = (name: string, value: unknown) => void;

/** Screen pixels per level-0 pixel beyond which zooming in stops. */
const MAX_PIXEL_RATIO = 8;
const DAMAGED_STORE = "Hatched in grey: damaged in the slide's store; gemslide verify says where.";
const UNREAD_TILES = "Some tiles of this slide could not be read.";

export class SlideViewer {
  readonly osd: OpenSeadragon.Viewer;
  readonly navigation: Navigation;
  readonly toolbar: Toolbar;
  readonly hotspots: Hotspots;
  readonly canvas = document.createElement("canvas");
  overlay: Overlay | null = null;
  damaged: DamagedAreas | null = null;
  private readonly stage = document.createElement("div");
  private readonly probeText = document.createElement("div");
  private readonly status = new Status();
  private readonly scaleBar = new ScaleBar();
  private readonly legend = new Legend();
  private readonly link: LinkState;
  private readonly keys: Keys;
  private readonly listeners = new AbortController();
  private lastGoto = 0;

  constructor(
    private readonly host: HTMLElement,
    public data: ViewerData,
    private emit: Emit,
  ) {
    this.link = new LinkState(data.slide.slide_id);
    this.toolbar = new Toolbar(this, styleOf(this.link.read(OVERLAY)));
    this.keys = new Keys(commandsOf(this));
    this.stage.className = "stage";
    this.probeText.className = "probe panel";
    this.canvas.className = "marks";
    this.host.append(this.toolbar.element, this.stage, this.keys.element);
    this.osd = this.createOsd();
    this.navigation = new Navigation(this.osd, data.slide);
    this.hotspots = new Hotspots(this.navigation, this.status);
    this.osd.canvas.append(this.canvas);
    this.osd.canvas.setAttribute("role", "application");
    this.osd.canvas.setAttribute("aria-label", `Slide ${data.slide.slide_id}. Arrow keys move, plus and minus zoom, question mark lists all keys.`);
    this.stage.append(this.status.element, this.probeText, this.scaleBar.element, this.legend.element);
    this.listen();
    this.update(data, emit);
  }

  /** New data from Python for the same slide. */
  update(data: ViewerData, emit: Emit): void {
    this.data = data;
    this.emit = emit;
    this.toolbar.show(data.overlay !== null, data.hotspots.length > 0);
    this.hotspots.replace(data.hotspots, this.toolbar.style.threshold);
    void this.loadOverlay();
    void this.loadDamaged();
    if (this.osd.isOpen()) {
      this.followGoto();
    }
    this.draw();
  }

  destroy(): void {
    this.listeners.abort();
    this.osd.destroy();
    this.host.remove();
  }

  placement(): Placement {
    return this.navigation.placement();
  }

  showWhole(): void {
    this.hotspots.leave();
    this.navigation.showWhole();
  }

  magnify(magnification: number): void {
    this.navigation.magnify(magnification);
  }

  nextHotspot(step: 1 | -1): void {
    this.hotspots.next(step);
    this.osd.forceRedraw();
  }

  fullScreen(): void {
    void (document.fullscreenElement ? document.exitFullscreen() : this.host.requestFullscreen());
  }

  listKeys(): void {
    this.keys.showList();
  }

  styleChanged(): void {
    this.link.write(OVERLAY, styleText(this.toolbar.style));
    this.restyle();
  }

  private createOsd(): OpenSeadragon.Viewer {
    return OpenSeadragon({
      element: this.stage,
      tileSources: createTileSource(this.data.slide, { onHoles: () => this.status.note(DAMAGED_STORE) }),
      // WebGL is several times slower than a 2-d canvas where there is no GPU, as on a remote desktop.
      drawer: "canvas",
      showNavigationControl: false,
      showNavigator: true,
      navigatorPosition: "TOP_RIGHT",
      navigatorAutoFade: false,
      navigatorOpacity: 1,
      navigatorSizeRatio: 0.16,
      navigatorDisplayRegionColor: "#d6006c",
      gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
      immediateRender: true,
      // As many as a browser holds connections to one server; all that are needed are asked for at once.
      imageLoaderLimit: 6,
      maxTilesPerFrame: 100,
      // The level nearest to the screen's resolution. The default takes one up to twice as fine: four times the tiles.
      minPixelRatio: Math.SQRT1_2,
      maxZoomPixelRatio: MAX_PIXEL_RATIO,
      visibilityRatio: 0.3,
      animationTime: 0.4,
    } as OpenSeadragon.Options);
  }

  private listen(): void {
    this.osd.addHandler("open", () => this.opened());
    this.osd.addHandler("update-viewport", () => this.draw());
    this.osd.addHandler("animation-finish", () => this.link.write(AT, viewText(this.navigation.view())));
    this.osd.addHandler("canvas-click", (event) => {
      if (event.quick) {
        this.probe(event.position);
      }
    });
    // Its keys are ours: OpenSeadragon's own would also rotate and flip, and the overlay is drawn for the upright slide.
    this.osd.addHandler("canvas-key", (event) => (event.preventDefaultAction = true));
    this.osd.addHandler("tile-load-failed", () => this.status.note(UNREAD_TILES));
    const { signal } = this.listeners;
    document.addEventListener("keydown", (event) => this.key(event), { signal, capture: true });
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

  private probe(position: OpenSeadragon.Point): void {
    const { left, top, scale } = this.placement();
    const x_px0 = Math.floor((position.x - left) / scale);
    const y_px0 = Math.floor((position.y - top) / scale);
    const { width_px, height_px } = this.data.slide.levels[0]!;
    if (x_px0 < 0 || y_px0 < 0 || x_px0 >= width_px || y_px0 >= height_px) {
      return;
    }
    this.emit("click", { x_px0, y_px0 });
  }

  private followGoto(): void {
    const { goto } = this.data;
    if (goto && goto.id !== this.lastGoto) {
      this.lastGoto = goto.id;
      this.hotspots.show(goto.hotspot);
      this.osd.forceRedraw();
    }
  }

  private async loadOverlay(): Promise<void> {
    const wanted = this.data.overlay;
    if (!wanted) {
      this.overlay = null;
    } else if (this.overlay?.url !== wanted.url) {
      try {
        const overlay = await Overlay.load(wanted.url, wanted.stride_px0);
        // Another class may have been chosen while this one was on its way.
        if (this.data.overlay?.url === wanted.url) {
          this.overlay = overlay;
        }
      } catch (error) {
        this.status.note(String(error));
      }
    }
    this.restyle();
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

  private restyle(): void {
    const { style } = this.toolbar;
    this.overlay?.colour(style);
    this.hotspots.setThreshold(style.threshold);
    this.legend.element.hidden = !this.data.overlay || !style.visible;
    this.legend.show(this.data.overlay?.label ?? "", style);
    this.draw();
  }

  private draw(): void {
    if (!this.osd.isOpen()) {
      return;
    }
    const context = this.clearCanvas();
    const placement = this.placement();
    const { style } = this.toolbar;
    if (this.overlay && style.visible) {
      this.overlay.draw(context, placement, style.opacity);
    }
    this.damaged?.draw(context, placement, this.data.slide.levels[0]!, window.devicePixelRatio);
    this.hotspots.look(placement, this.stage.clientWidth, this.stage.clientHeight);
    drawHotspots(context, placement, this.data.hotspots, this.hotspots.shown(style.visible), this.hotspots.current);
    this.drawProbe(context, placement);
    this.scaleBar.show(this.data.slide.mpp0 / placement.scale, this.data.slide.mpp0);
  }

  private drawProbe(context: CanvasRenderingContext2D, placement: Placement): void {
    const { probe } = this.data;
    this.probeText.textContent = probe?.text ?? "";
    if (probe) {
      drawProbe(context, placement, probe);
      const x = placement.left + probe.x_px0 * placement.scale;
      const y = placement.top + probe.y_px0 * placement.scale;
      // Beside the point, on the side with more room.
      const shift = x > this.stage.clientWidth / 2 ? "-100%" : "0px";
      const gap = shift === "0px" ? 14 : -14;
      this.probeText.style.transform = `translate(calc(${x + gap}px + ${shift}), ${y + 12}px)`;
    }
  }

  private clearCanvas(): CanvasRenderingContext2D {
    const ratio = window.devicePixelRatio;
    const [width, height] = [this.stage.clientWidth, this.stage.clientHeight];
    const [deviceWidth, deviceHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== deviceWidth || this.canvas.height !== deviceHeight) {
      [this.canvas.width, this.canvas.height] = [deviceWidth, deviceHeight];
    }
    const context = this.canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }
}
