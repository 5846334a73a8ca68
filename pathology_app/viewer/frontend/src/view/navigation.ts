// Navigation over the slide, and the transform from level-0 pixels to the screen.
import OpenSeadragon from "openseadragon";
import { boundsOf, type Point, Transform } from "./geometry";
import { umPerPxAt } from "./scale_bar";
import type { Slide } from "../types";

/** Centre of the screen in µm from the slide's top left corner, and µm per screen pixel. */
export interface View {
  x_um: number;
  y_um: number;
  um_per_px: number;
  /** Clockwise, 0 to 359. */
  degrees: number;
  isMirrored: boolean;
}

/** Overlap of neighbouring fields of view, as a fraction, so that nothing at an edge is missed. */
const OVERLAP = 0.1;
const NUDGE = 0.15;
const ZOOM_STEP = 1.5;

/** Magnifications that have a button and a key. */
export const MAGNIFICATIONS = [1.25, 2.5, 5, 10, 20, 40];
/** Smallest zoom relative to the whole slide on the screen: leaves a margin around the slide. */
const SMALLEST_RATIO = 0.9;

export class Navigation {
  constructor(
    private readonly osd: OpenSeadragon.Viewer,
    private readonly slide: Slide,
  ) {
    for (const event of ["open", "resize"] as const) {
      osd.addHandler(event, () => this.limitZoom());
    }
  }

  /** Allow the magnification of every button, even if the slide is then smaller than the screen. */
  private limitZoom(): void {
    const { viewport } = this.osd;
    const lowest = this.zoomAt(umPerPxAt(MAGNIFICATIONS[0]!));
    (viewport as unknown as { minZoomLevel: number }).minZoomLevel = Math.min(SMALLEST_RATIO * viewport.getHomeZoom(), lowest);
  }

  /** @param current the placement seen now, or the one that the current movement ends at. */
  transform(current = true): Transform {
    const { viewport } = this.osd;
    const width = viewport.getContainerSize().x;
    const at = (x: number, y: number): Point => {
      const { x: across, y: down } = viewport.pixelFromPoint(new OpenSeadragon.Point(x, y), current);
      return { x: viewport.getFlip() ? width - across : across, y: down };
    };
    return Transform.through(at(0, 0), at(1, 0), at(0, 1), this.width_px0);
  }

  /** @param current the view seen now, or the one that the current movement ends at. */
  view(current = false): View {
    const { viewport } = this.osd;
    const um = this.width_px0 * this.slide.mpp0;
    const centre = viewport.getCenter(current);
    return {
      x_um: centre.x * um,
      y_um: centre.y * um,
      um_per_px: this.umPerPxAtZoom1 / viewport.getZoom(current),
      degrees: ((viewport.getRotation() % 360) + 360) % 360,
      isMirrored: viewport.getFlip(),
    };
  }

  /**
   * Go to a view without animation.
   * @param isKept whether a view far outside the slide is moved to its nearest part.
   */
  show({ x_um, y_um, um_per_px, degrees, isMirrored }: View, isKept = true): void {
    const { viewport } = this.osd;
    const um = this.width_px0 * this.slide.mpp0;
    viewport.setRotation(degrees, true);
    viewport.setFlip(isMirrored);
    viewport.zoomTo(this.zoomAt(um_per_px), undefined, true);
    viewport.panTo(new OpenSeadragon.Point(x_um / um, y_um / um), true);
    if (isKept) {
      viewport.applyConstraints(true);
    }
  }

  isMoving(): boolean {
    const { viewport } = this.osd;
    const remaining = viewport.getCenter(true).distanceTo(viewport.getCenter(false));
    return remaining > 1e-6 || Math.abs(viewport.getZoom(true) / viewport.getZoom(false) - 1) > 1e-6;
  }

  showWhole(): void {
    this.osd.viewport.goHome();
  }

  showSquare(x_px0: number, y_px0: number, side_px0: number): void {
    this.showBox(x_px0 - side_px0 / 2, y_px0 - side_px0 / 2, side_px0, side_px0);
  }

  showBox(left_px0: number, top_px0: number, width_px0: number, height_px0: number): void {
    const per_px0 = 1 / this.width_px0;
    const sides = [left_px0, top_px0, width_px0, height_px0].map((side) => side * per_px0);
    this.osd.viewport.fitBounds(new OpenSeadragon.Rect(...sides));
  }

  magnify(magnification: number): void {
    this.osd.viewport.zoomTo(this.zoomAt(umPerPxAt(magnification)));
  }

  zoom(step: number): void {
    this.osd.viewport.zoomBy(ZOOM_STEP ** step).applyConstraints();
  }

  /** Rotate the image clockwise as seen on the screen. */
  turn(degrees: number): void {
    const { viewport } = this.osd;
    viewport.setRotation(viewport.getRotation() + (viewport.getFlip() ? -degrees : degrees), true);
  }

  /** Flip horizontally. */
  mirror(): void {
    this.osd.viewport.toggleFlip();
  }

  setUpright(): void {
    this.osd.viewport.setRotation(0, true);
    this.osd.viewport.setFlip(false);
  }

  nudge(right: number, down: number): void {
    this.pan(right * NUDGE, down * NUDGE, false);
  }

  /** Go to the adjacent field of view, without animation. */
  nextField(right: number, down: number): void {
    this.pan(right * (1 - OVERLAP), down * (1 - OVERLAP), true);
  }

  /** Bounds of the adjacent field of view: left, top, right, bottom, in level-0 pixels. */
  boundsBeside(right: number, down: number): [number, number, number, number] {
    const { x: width, y: height } = this.osd.viewport.getContainerSize();
    const [left, top] = [right * (1 - OVERLAP) * width, down * (1 - OVERLAP) * height];
    const transform = this.transform(false);
    return boundsOf([[0, 0], [width, 0], [width, height], [0, height]].map(([x, y]) => transform.toSlide({ x: left + x!, y: top + y! })));
  }

  /** Pan by fractions of the screen, along the screen's axes. */
  pan(right: number, down: number, immediately: boolean): void {
    const { viewport } = this.osd;
    const { x: width, y: height } = viewport.getContainerSize();
    // OpenSeadragon rotates a screen distance with the image, but does not mirror it.
    const across = viewport.getFlip() ? -right : right;
    const by = viewport.deltaPointsFromPixels(new OpenSeadragon.Point(across * width, down * height), false);
    viewport.panBy(by, immediately);
    viewport.applyConstraints(immediately);
  }

  private zoomAt(um_per_px: number): number {
    return this.umPerPxAtZoom1 / um_per_px;
  }

  /** At zoom 1 the slide is as wide as the stage. */
  private get umPerPxAtZoom1(): number {
    return (this.width_px0 * this.slide.mpp0) / this.osd.viewport.getContainerSize().x;
  }

  private get width_px0(): number {
    return this.slide.levels[0]!.width_px;
  }
}
