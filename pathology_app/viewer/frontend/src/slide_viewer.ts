// One slide on the screen: OpenSeadragon below, the prediction and the marks on a canvas above it.
import OpenSeadragon from "openseadragon";
import { DamagedAreas } from "./damaged";
import { Legend } from "./legend";
import { drawHotspots, drawProbe } from "./marks";
import { Overlay, type Placement } from "./overlay";
import { ScaleBar, umPerPxAt } from "./scale_bar";
import { createTileSource } from "./tile_source";
import { Toolbar } from "./toolbar";
import type { ViewerData } from "./types";

export type Emit = (name: string, value: unknown) => void;

/** Screen pixels per level-0 pixel beyond which zooming in stops. */
const MAX_PIXEL_RATIO = 8;
const DAMAGED_STORE = "Hatched in grey: damaged in the slide's store; gemslide verify says where.";

export class SlideViewer {
  readonly osd: OpenSeadragon.Viewer;
  readonly toolbar: Toolbar;
  readonly canvas = document.createElement("canvas");
  overlay: Overlay | null = null;
  damaged: DamagedAreas | null = null;
  current: number | null = null;
  private readonly stage = document.createElement("div");
  private readonly status = document.createElement("div");
  private readonly probeText = document.createElement("div");
  private readonly scaleBar = new ScaleBar();
  private readonly legend = new Legend();
  private readonly listeners = new AbortController();
  private lastGoto = 0;

  constructor(
    private readonly host: HTMLElement,
    public data: ViewerData,
    private emit: Emit,
  ) {
    this.toolbar = new Toolbar({
      styleChanged: () => this.restyle(),
      showWhole: () => this.showWhole(),
      magnify: (magnification) => this.magnify(magnification),
      nextHotspot: (step) => this.nextHotspot(step),
      fullScreen: () => this.fullScreen(),
    });
    this.stage.className = "stage";
    this.status.className = "status panel";
    this.probeText.className = "probe panel";
    this.canvas.className = "marks";
    this.host.append(this.toolbar.element, this.stage);
    this.osd = this.createOsd();
    this.osd.canvas.append(this.canvas);
    this.stage.append(this.status, this.probeText, this.scaleBar.element, this.legend.element);
    this.listen();
    this.update(data, emit);
  }

  /** New data from Python for the same slide. */
  update(data: ViewerData, emit: Emit): void {
    this.data = data;
    this.emit = emit;
    this.toolbar.show(data.overlay !== null, data.hotspots.length > 0);
    if (this.current !== null && this.current >= data.hotspots.length) {
      this.current = null;
    }
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

  /** Where level-0 pixels lie on the screen now, in CSS pixels from the corner of the stage. */
  placement(): Placement {
    const viewport = this.osd.viewport;
    const width_px0 = this.data.slide.levels[0].width_px;
    const topLeft = viewport.pixelFromPoint(new OpenSeadragon.Point(0, 0), true);
    const topRight = viewport.pixelFromPoint(new OpenSeadragon.Point(1, 0), true);
    return { left: topLeft.x, top: topLeft.y, scale: (topRight.x - topLeft.x) / width_px0 };
  }

  private createOsd(): OpenSeadragon.Viewer {
    return OpenSeadragon({
      element: this.stage,
      tileSources: createTileSource(this.data.slide, { onHoles: () => this.say(DAMAGED_STORE) }),
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
      maxZoomPixelRatio: MAX_PIXEL_RATIO,
      visibilityRatio: 0.3,
      animationTime: 0.4,
    } as OpenSeadragon.Options);
  }

  private listen(): void {
    this.osd.addHandler("open", () => this.followGoto());
    this.osd.addHandler("update-viewport", () => this.draw());
    this.osd.addHandler("canvas-click", (event) => {
      if (event.quick) {
        this.probe(event.position);
      }
    });
    this.osd.addHandler("canvas-key", (event) => {
      // OpenSeadragon would rotate and flip: the overlay is drawn for the upright slide.
      event.preventDefaultAction = ["r", "R", "f", "F"].includes((event.originalEvent as KeyboardEvent).key);
    });
    this.osd.addHandler("tile-load-failed", () => this.say("Some tiles of this slide could not be read."));
    document.addEventListener("keydown", (event) => this.key(event), { signal: this.listeners.signal });
  }

  private key(event: KeyboardEvent): void {
    const target = event.composedPath()[0];
    const isTyping = target instanceof HTMLElement && target.matches("input:not([type=range], [type=checkbox]), textarea, select, [contenteditable]");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    if (event.key === "o" && this.data.overlay) {
      this.toolbar.toggleOverlay();
    } else if (event.key === "n") {
      this.nextHotspot(1);
    } else if (event.key === "p") {
      this.nextHotspot(-1);
    }
  }

  private probe(position: OpenSeadragon.Point): void {
    const { left, top, scale } = this.placement();
    const x_px0 = Math.floor((position.x - left) / scale);
    const y_px0 = Math.floor((position.y - top) / scale);
    const { width_px, height_px } = this.data.slide.levels[0];
    if (x_px0 < 0 || y_px0 < 0 || x_px0 >= width_px || y_px0 >= height_px) {
      return;
    }
    this.emit("click", { x_px0, y_px0 });
  }

  private nextHotspot(step: 1 | -1): void {
    const count = this.data.hotspots.length;
    if (count > 0) {
      const start = step === 1 ? -1 : 0;
      this.showHotspot(((this.current ?? start) + step + count) % count);
    }
  }

  private followGoto(): void {
    const { goto } = this.data;
    if (goto && goto.id !== this.lastGoto) {
      this.lastGoto = goto.id;
      this.showHotspot(goto.hotspot);
    }
  }

  private showHotspot(index: number): void {
    const hotspot = this.data.hotspots[index];
    if (!hotspot) {
      return;
    }
    this.current = index;
    const side = hotspot.side_px0;
    const image = this.osd.world.getItemAt(0);
    this.osd.viewport.fitBounds(
      image.imageToViewportRectangle(hotspot.x_px0 - side / 2, hotspot.y_px0 - side / 2, side, side),
    );
    this.say(`Hotspot ${index + 1} of ${this.data.hotspots.length} · ${hotspot.label}`);
    this.osd.forceRedraw();
  }

  private showWhole(): void {
    this.say("");
    this.osd.viewport.goHome();
  }

  private magnify(magnification: number): void {
    const screenPerPx0 = this.data.slide.mpp0 / umPerPxAt(magnification);
    const image = this.osd.world.getItemAt(0);
    this.osd.viewport.zoomTo(image.imageToViewportZoom(screenPerPx0));
  }

  private fullScreen(): void {
    void (document.fullscreenElement ? document.exitFullscreen() : this.host.requestFullscreen());
  }

  private say(text: string): void {
    this.status.textContent = text;
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
        this.say(String(error));
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
        this.say(String(error));
      }
    }
    this.draw();
  }

  private restyle(): void {
    const { style } = this.toolbar;
    this.overlay?.colour(style);
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
    // With the colours off, the ring of the hotspot gone to stays: that is when one looks at the tissue in it.
    const shown = this.data.hotspots.map((_, index) => index).filter((index) => style.visible || index === this.current);
    drawHotspots(context, placement, this.data.hotspots, shown, this.current);
    this.drawProbe(context, placement);
    this.scaleBar.show(this.data.slide.mpp0 / placement.scale);
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
