// OpenSeadragon options for a slide.
import type OpenSeadragon from "openseadragon";

/** Largest zoom, in screen pixels per level-0 pixel. */
const MAX_PIXEL_RATIO = 8;

/**
 * Screen pixels per level pixel below which the next coarser level is shown: this selects the level nearest to the screen's
 * resolution. OpenSeadragon's default selects a level up to twice as fine, which means up to four times the tiles.
 */
export const FINEST_RATIO = Math.SQRT1_2;

/** @param hasNavigator whether to show an overview of the whole slide in the corner. */
export function optionsOf(element: HTMLElement, tileSource: OpenSeadragon.TileSource, hasNavigator: boolean): OpenSeadragon.Options {
  return {
    element,
    tileSources: tileSource,
    showNavigationControl: false,
    showNavigator: hasNavigator,
    navigatorPosition: "TOP_RIGHT",
    navigatorAutoFade: false,
    navigatorOpacity: 1,
    navigatorSizeRatio: 0.16,
    navigatorDisplayRegionColor: "#d6006c",
    gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
    gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true, pinchRotate: false },
    gestureSettingsPen: { clickToZoom: false, dblClickToZoom: true },
    immediateRender: true,
    // OpenSeadragon takes no more tiles than this in one frame. Twice the connections that a browser opens to one server:
    // prefetched tiles need none, and the next field of view consists of about ten.
    imageLoaderLimit: 12,
    maxTilesPerFrame: 100,
    minPixelRatio: FINEST_RATIO,
    maxZoomPixelRatio: MAX_PIXEL_RATIO,
    visibilityRatio: 0.3,
    preserveImageSizeOnResize: true,
    animationTime: 0.4,
  } as OpenSeadragon.Options;
}
