// Test hooks: the viewer's state for browser tests.
import type OpenSeadragon from "openseadragon";
import { type AnnotationHook, hookOf } from "./annotations/hook";
import type { CompareViewer } from "./compare/viewer";
import type { SlideViewer } from "./slide_viewer";
import { imageShown } from "./tiles/focal_planes";

export interface TestHook {
  slideId(): string;
  /** Nothing moves, no tile is being loaded, and the page is drawn. */
  isSettled(): boolean;
  /** The same, even before the page has followed with everything but the slide. */
  isImageComplete(): boolean;
  /** The navigator and the adjacent fields are loaded too: no tile is requested until the view moves. */
  isReadAhead(): boolean;
  /** Position of the slide's corner on the screen, and screen pixels per level-0 pixel. */
  placement(): { left: number; top: number; scale: number };
  /** Screen position of a level-0 pixel; also correct if the slide is rotated or mirrored. */
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
  /** Number of the focal plane on the screen; null if the slide has a single one. */
  focalPlane(): number | null;
  /** Whether the planes above and below the one shown are loaded, too. */
  neighboursReady(): boolean;
  currentHotspot(): number | null;
  /** Hotspots circled on the slide, by their index in the list. */
  shownHotspots(): number[];
  /** Viewers not yet destroyed: more than one would be a leak. */
  liveViewers(): number;
  /** null if annotations may not be shown: then only measuring is possible. */
  annotations: AnnotationHook | null;
}

/** State of the side-by-side view for browser tests. */
export interface CompareHook {
  isSettled(): boolean;
  /** Position in a view of a level-0 pixel of its slide. */
  toScreen(pane: number, x_px0: number, y_px0: number): { x: number; y: number };
  /** Marked position of the pointer in another view, in level-0 pixels of this view's slide. */
  pointer(pane: number): { x: number; y: number } | null;
  degrees(pane: number): number;
  /** The view that keys and tools are for. */
  active(): number;
  mayAnnotate(pane: number): boolean;
  /** Kinds of the annotations on a view's slide. */
  kinds(pane: number): string[];
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

function isLoaded(osd: OpenSeadragon.Viewer): boolean {
  return osd.isOpen() && imageShown(osd).getFullyLoaded();
}

function isComplete(viewer: SlideViewer): boolean {
  return isLoaded(viewer.osd) && !viewer.navigation.isMoving();
}

export function exposeHook(viewer: SlideViewer, liveViewers: () => number): void {
  window.__gemslide = {
    slideId: () => viewer.data.slide.slide_id,
    isSettled: () => isComplete(viewer) && !viewer.data.is_partial,
    isImageComplete: () => isComplete(viewer),
    isReadAhead: () => isLoaded(viewer.osd) && isLoaded(viewer.osd.navigator) && viewer.readAhead.isDone && !viewer.data.is_partial,
    placement: () => {
      const { e, f, scale } = viewer.navigation.transform();
      return { left: e, top: f, scale };
    },
    toScreen: (x, y) => viewer.navigation.transform().toScreen({ x, y }),
    inHand: () => viewer.annotations.inHand,
    measured: () => viewer.annotations.measured,
    counted: () => viewer.annotations.counter.active?.classes.reduce((sum, { number }) => sum + number, 0) ?? null,
    overlayColour: (x_px0, y_px0) => colourAt(viewer.picture.canvas, viewer, x_px0, y_px0),
    slideColour: (x_px0, y_px0) => colourAt(viewer.osd.drawer.canvas as HTMLCanvasElement, viewer, x_px0, y_px0),
    hasOverlay: () => viewer.layers.shown.length > 0 && viewer.layers.shown.every(({ cells }) => cells !== null),
    hasDamaged: () => viewer.damaged.isShown,
    focalPlane: () => viewer.focus?.onScreen ?? null,
    neighboursReady: () => isComplete(viewer) && (viewer.focus?.isReady ?? true),
    currentHotspot: () => viewer.hotspots.current,
    shownHotspots: () => viewer.shownHotspots(),
    liveViewers,
    annotations: viewer.annotations.isScratch ? null : hookOf(viewer.annotations),
  };
}

export function exposeCompareHook(viewer: CompareViewer): void {
  window.__gemslideCompare = {
    isSettled: () => viewer.panes.every(({ osd, isOpen, navigation }) => isOpen && isLoaded(osd) && !navigation.isMoving()),
    toScreen: (pane, x, y) => viewer.panes[pane]!.navigation.transform().toScreen({ x, y }),
    pointer: (pane) => viewer.panes[pane]!.pointer,
    degrees: (pane) => viewer.panes[pane]!.navigation.view().degrees,
    active: () => viewer.panes.indexOf(viewer.active),
    mayAnnotate: (pane) => viewer.panes[pane]!.annotations.mayAnnotate,
    kinds: (pane) => [...viewer.panes[pane]!.annotations.model.shown()].map(([, { kind }]) => kind),
  };
}
