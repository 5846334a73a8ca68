// What a browser test may ask of the viewer.
import type { SlideViewer } from "./slide_viewer";

export interface TestHook {
  slideId(): string;
  /** Nothing moves and no tile is on its way. */
  isSettled(): boolean;
  placement(): { left: number; top: number; scale: number };
  /** The overlay's colour over a level-0 pixel, as [r, g, b, a]. */
  overlayColour(x_px0: number, y_px0: number): number[];
  /** The slide's own colour over a level-0 pixel, as [r, g, b, a]. */
  slideColour(x_px0: number, y_px0: number): number[];
  hasOverlay(): boolean;
  hasDamaged(): boolean;
  currentHotspot(): number | null;
  /** Rings on the screen, by their places in the list. */
  shownHotspots(): number[];
  /** Viewers not yet ended: more than one would be a leak. */
  liveViewers(): number;
}

declare global {
  interface Window {
    __gemslide?: TestHook;
  }
}

function colourAt(canvas: HTMLCanvasElement, viewer: SlideViewer, x_px0: number, y_px0: number): number[] {
  const { left, top, scale } = viewer.placement();
  const ratio = window.devicePixelRatio;
  const x = Math.floor((left + (x_px0 + 0.5) * scale) * ratio);
  const y = Math.floor((top + (y_px0 + 0.5) * scale) * ratio);
  return Array.from(canvas.getContext("2d")!.getImageData(x, y, 1, 1).data);
}

export function exposeHook(viewer: SlideViewer, liveViewers: () => number): void {
  window.__gemslide = {
    slideId: () => viewer.data.slide.slide_id,
    isSettled: () =>
      viewer.osd.isOpen() && viewer.osd.world.getItemAt(0).getFullyLoaded() && !viewer.navigation.isMoving(),
    placement: () => viewer.placement(),
    overlayColour: (x_px0, y_px0) => colourAt(viewer.canvas, viewer, x_px0, y_px0),
    slideColour: (x_px0, y_px0) => colourAt(viewer.osd.drawer.canvas as HTMLCanvasElement, viewer, x_px0, y_px0),
    hasOverlay: () => viewer.overlay !== null,
    hasDamaged: () => viewer.damaged !== null,
    currentHotspot: () => viewer.hotspots.current,
    shownHotspots: () => viewer.hotspots.shown(viewer.toolbar.style.visible),
    liveViewers,
  };
}
