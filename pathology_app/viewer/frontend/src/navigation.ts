// Where one looks: moves over the slide, and the place where level-0 pixels lie on the screen.
import OpenSeadragon from "openseadragon";
import { umPerPxAt } from "./scale_bar";
import type { Slide } from "./types";

/** Where the slide lies on the screen: screen = left/top + scale * px0, in CSS pixels. */
export interface Placement {
  left: number;
  top: number;
  scale: number;
}

/** The middle of the screen in µm from the slide's top left corner, and µm along a pixel of the screen. */
export interface View {
  x_um: number;
  y_um: number;
  um_per_px: number;
}

/** Part of a field of view that is seen again in the next one, so that nothing on its edge is missed. */
const OVERLAP = 0.1;
const NUDGE = 0.15;
const ZOOM_STEP = 1.5;

export class Navigation {
  constructor(
    private readonly osd: OpenSeadragon.Viewer,
    private readonly slide: Slide,
  ) {}

  placement(): Placement {
    const { viewport } = this.osd;
    const topLeft = viewport.pixelFromPoint(new OpenSeadragon.Point(0, 0), true);
    const topRight = viewport.pixelFromPoint(new OpenSeadragon.Point(1, 0), true);
    return { left: topLeft.x, top: topLeft.y, scale: (topRight.x - topLeft.x) / this.width_px0 };
  }

  view(): View {
    const um = this.width_px0 * this.slide.mpp0;
    const centre = this.osd.viewport.getCenter(false);
    return { x_um: centre.x * um, y_um: centre.y * um, um_per_px: this.umPerPx(this.osd.viewport.getZoom(false)) };
  }

  /** Look at a place at once. A view far outside the slide shows its nearest part. */
  show({ x_um, y_um, um_per_px }: View): void {
    const { viewport } = this.osd;
    const um = this.width_px0 * this.slide.mpp0;
    viewport.zoomTo((viewport.getZoom() * this.umPerPx(viewport.getZoom())) / um_per_px, undefined, true);
    viewport.panTo(new OpenSeadragon.Point(x_um / um, y_um / um), true);
    viewport.applyConstraints(true);
  }

  isMoving(): boolean {
    const { viewport } = this.osd;
    const away = viewport.getCenter(true).distanceTo(viewport.getCenter(false));
    return away > 1e-6 || Math.abs(viewport.getZoom(true) / viewport.getZoom(false) - 1) > 1e-6;
  }

  showWhole(): void {
    this.osd.viewport.goHome();
  }

  showSquare(x_px0: number, y_px0: number, side_px0: number): void {
    const image = this.osd.world.getItemAt(0);
    const corner = [x_px0 - side_px0 / 2, y_px0 - side_px0 / 2] as const;
    this.osd.viewport.fitBounds(image.imageToViewportRectangle(...corner, side_px0, side_px0));
  }

  magnify(magnification: number): void {
    const image = this.osd.world.getItemAt(0);
    this.osd.viewport.zoomTo(image.imageToViewportZoom(this.slide.mpp0 / umPerPxAt(magnification)));
  }

  zoom(step: 1 | -1): void {
    this.osd.viewport.zoomBy(ZOOM_STEP ** step).applyConstraints();
  }

  /** A little further, gliding. */
  nudge(right: number, down: number): void {
    this.pan(right * NUDGE, down * NUDGE, false);
  }

  /** To the field of view beside this one, at once. */
  nextField(right: number, down: number): void {
    this.pan(right * (1 - OVERLAP), down * (1 - OVERLAP), true);
  }

  /** By shares of what the screen shows. */
  private pan(right: number, down: number, immediately: boolean): void {
    const { viewport } = this.osd;
    const { width, height } = viewport.getBounds(false);
    viewport.panBy(new OpenSeadragon.Point(right * width, down * height), immediately);
    viewport.applyConstraints(immediately);
  }

  private umPerPx(zoom: number): number {
    return (this.width_px0 * this.slide.mpp0) / (zoom * this.osd.viewport.getContainerSize().x);
  }

  private get width_px0(): number {
    return this.slide.levels[0]!.width_px;
  }
}
