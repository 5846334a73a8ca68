// Opens a slide in OpenSeadragon.
import OpenSeadragon from "openseadragon";
import { optionsOf } from "./osd_options";
import { WholePixelDrawer } from "./whole_pixel_drawer";

/** @param hasNavigator whether to show an overview of the whole slide in the corner. */
export function openViewer(element: HTMLElement, tileSource: OpenSeadragon.TileSource, hasNavigator: boolean): OpenSeadragon.Viewer {
  const osd = OpenSeadragon({ ...optionsOf(element, tileSource, hasNavigator), drawer: WholePixelDrawer });
  keepWhole(osd);
  hideUntilDrawn(osd, element);
  return osd;
}

/** Do not paint frames without a tile: without a GPU, each such frame delays the tiles. */
function hideUntilDrawn(osd: OpenSeadragon.Viewer, element: HTMLElement): void {
  const show = (): void => element.classList.remove("is-empty");
  element.classList.add("is-empty");
  osd.addOnceHandler("tile-loaded", show);
  osd.addOnceHandler("tile-load-failed", show);
}

/** Keep the magnification when the stage is resized, except that a slide shown in full is fitted again. */
function keepWhole(osd: OpenSeadragon.Viewer): void {
  let whole = 0;
  osd.addHandler("open", () => (whole = osd.viewport.getHomeZoom()));
  osd.addHandler("resize", () => {
    const { viewport } = osd;
    const isCentred = viewport.getCenter().distanceTo(viewport.getHomeBounds().getCenter()) < 1e-3;
    const wasWhole = isCentred && viewport.getRotation() === 0 && Math.abs(viewport.getZoom() / whole - 1) < 1e-3;
    whole = viewport.getHomeZoom();
    if (wasWhole) {
      queueMicrotask(() => osd.isOpen() && viewport.goHome(true)); // OpenSeadragon sets the zoom after raising the event
    }
  });
}
