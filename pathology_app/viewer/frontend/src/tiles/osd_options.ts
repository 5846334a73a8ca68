// How OpenSeadragon shows a slide.
import type OpenSeadragon from "openseadragon";

/** Screen pixels per level-0 pixel beyond which zooming in stops. */
const MAX_PIXEL_RATIO = 8;

/**
 * Pixels of the screen for a pixel of a level, below which the next coarser level is shown: the level nearest to the
 * screen's resolution. OpenSeadragon's default takes one up to twice as fine: four times the tiles.
 */
export const FINEST_RATIO = Math.SQRT1_2;

/** @param hasNavigator whether a small picture of the whole slide stands in its corner. */
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
    // As many as a browser holds connections to one server; all that are needed are asked for at once.
    imageLoaderLimit: 6,
    maxTilesPerFrame: 100,
    minPixelRatio: FINEST_RATIO,
    maxZoomPixelRatio: MAX_PIXEL_RATIO,
    visibilityRatio: 0.3,
    preserveImageSizeOnResize: true,
    animationTime: 0.4,
  } as OpenSeadragon.Options;
}
