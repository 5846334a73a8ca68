// OpenSeadragon with a slide.
import OpenSeadragon from "openseadragon";
import { optionsOf } from "./viewer_options";
import { WholePixelDrawer } from "./whole_pixel_drawer";

/** @param hasNavigator whether a small picture of the whole slide stands in its corner. */
export function openViewer(element: HTMLElement, tileSource: OpenSeadragon.TileSource, hasNavigator: boolean): OpenSeadragon.Viewer {
  const osd = OpenSeadragon({ ...optionsOf(element, tileSource, hasNavigator), drawer: WholePixelDrawer });
  keepWhole(osd);
  hideUntilDrawn(osd, element);
  return osd;
}

/** Frames without a tile are not put on the screen: where there is no GPU, each holds up the tiles that are to come. */
function hideUntilDrawn(osd: OpenSeadragon.Viewer, element: HTMLElement): void {
  const show = (): void => element.classList.remove("is-empty");
  element.classList.add("is-empty");
  osd.addOnceHandler("tile-loaded", show);
  osd.addOnceHandler("tile-load-failed", show);
}

/** When the stage gets another size, the magnification stays; but a slide that is seen as a whole is seen so again. */
function keepWhole(osd: OpenSeadragon.Viewer): void {
  let whole = 0;
  osd.addHandler("open", () => (whole = osd.viewport.getHomeZoom()));
  osd.addHandler("resize", () => {
    const { viewport } = osd;
    const isCentred = viewport.getCenter().distanceTo(viewport.getHomeBounds().getCenter()) < 1e-3;
    const wasWhole = isCentred && viewport.getRotation() === 0 && Math.abs(viewport.getZoom() / whole - 1) < 1e-3;
    whole = viewport.getHomeZoom();
    if (wasWhole) {
      queueMicrotask(() => osd.isOpen() && viewport.goHome(true)); // OpenSeadragon sets the zoom after it has said so
    }
  });
}
