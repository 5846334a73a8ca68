// What a browser test may ask of the viewer.
import { type AnnotationHook, hookOf } from "./annotations/hook";
import type { CompareViewer } from "./compare/compare_viewer";
import type { SlideViewer } from "./slide_viewer";

export interface TestHook {
  slideId(): string;
  /** Nothing moves and no tile is on its way. */
  isSettled(): boolean;
  /** Where the slide's corner lies on the screen, and screen pixels per level-0 pixel. */
  placement(): { left: number; top: number; scale: number };
  /** Where a level-0 pixel lies on the screen, also of a slide that is turned or mirrored. */
  toScreen(x_px0: number, y_px0: number): { x: number; y: number };
  inHand(): string | null;
  measured(): string[];
  counted(): number | null;
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
  /** null where none may be shown. */
  annotations: AnnotationHook | null;
}

/** What a browser test may ask of views side by side. */
export interface CompareHook {
  isSettled(): boolean;
  /** Where a level-0 pixel of a view's slide lies on that view. */
  toScreen(pane: number, x_px0: number, y_px0: number): { x: number; y: number };
  /** The place of the other view's slide that is marked, in level-0 pixels. */
  pointer(pane: number): { x: number; y: number } | null;
  degrees(pane: number): number;
}

declare global {
  interface Window {
    __gemslide?: TestHook;
    __gemslideCompare?: CompareHook;
  }
}

function colourAt(canvas: HTMLCanvasElement, viewer: SlideViewer, x_px0: number, y_px0: number): number[] {
  const at = viewer.navigation.transform().toScreen({ x: x_px0 + 0.5, y: y_px0 + 0.5 });
  const ratio = window.devicePixelRatio;
  const [x, y] = [Math.floor(at.x * ratio), Math.floor(at.y * ratio)];
  return Array.from(canvas.getContext("2d")!.getImageData(x, y, 1, 1).data);
}

export function exposeHook(viewer: SlideViewer, liveViewers: () => number): void {
  window.__gemslide = {
    slideId: () => viewer.data.slide.slide_id,
    isSettled: () =>
      viewer.osd.isOpen() && viewer.osd.world.getItemAt(0).getFullyLoaded() && !viewer.navigation.isMoving(),
    placement: () => {
      const { e, f, scale } = viewer.navigation.transform();
      return { left: e, top: f, scale };
    },
    toScreen: (x, y) => viewer.navigation.transform().toScreen({ x, y }),
    inHand: () => viewer.toolbox.inHand,
    measured: () => {
      const { mpp0 } = viewer.data.slide;
      return [...viewer.toolbox.ruler.results(mpp0), ...viewer.toolbox.area.results(mpp0)];
    },
    counted: () => viewer.toolbox.counting?.count ?? null,
    overlayColour: (x_px0, y_px0) => colourAt(viewer.picture.canvas, viewer, x_px0, y_px0),
    slideColour: (x_px0, y_px0) => colourAt(viewer.osd.drawer.canvas as HTMLCanvasElement, viewer, x_px0, y_px0),
    hasOverlay: () => viewer.layers.shown.length > 0 && viewer.layers.shown.every(({ cells }) => cells !== null),
    hasDamaged: () => viewer.damaged.isShown,
    currentHotspot: () => viewer.hotspots.current,
    shownHotspots: () => viewer.shownHotspots(),
    liveViewers,
    annotations: viewer.annotations && hookOf(viewer.annotations),
  };
}

export function exposeCompareHook(viewer: CompareViewer): void {
  window.__gemslideCompare = {
    isSettled: () => viewer.panes.every(({ osd, isOpen, navigation }) => isOpen && osd.world.getItemAt(0).getFullyLoaded() && !navigation.isMoving()),
    toScreen: (pane, x, y) => viewer.panes[pane]!.navigation.transform().toScreen({ x, y }),
    pointer: (pane) => viewer.panes[pane]!.pointer,
    degrees: (pane) => viewer.panes[pane]!.navigation.view().degrees,
  };
}
