// Connects annotations to the viewer of a slide.
import { parametersOf, showParameters } from "../view/parameters";
import type { Viewer } from "../viewer";
import type { LayerInfo } from "../types";
import { Annotations } from "./controller";
import { Api } from "./storage/api";
import { ScratchApi } from "./scratch/api";

/**
 * Annotations of a slide's viewer, and its measuring tools.
 * @param scratch in a reading without help, where annotations may not be shown, the reading's name: measurements are then
 * kept in the browser under it. null elsewhere.
 * @param signal aborted when the viewer is destroyed.
 */
export function annotationsOn(viewer: Viewer, scratch: string | null, signal: AbortSignal): Annotations {
  const { navigation, sight, stage, osd } = viewer;
  const { slide_id: slideId, mpp0, levels } = viewer.data.slide;
  const { width_px: width_px0, height_px: height_px0 } = levels[0]!;
  const api = scratch === null ? new Api(slideId) : new ScratchApi(storeOfBrowser(), `gemslide/measured/${scratch}/${slideId}`, { width_px0, height_px0, mpp0 });
  return new Annotations(
    {
      osd, stage, slideId, width_px0, height_px0, mpp0,
      transform: () => navigation.transform(),
      slidePoint: (event) => sight.pointOf(event),
      middle: () => sight.middle(),
      showBox: (...box) => navigation.showBox(...box),
      panBy: (right, down) => navigation.pan(right / stage.clientWidth, down / stage.clientHeight, true),
      redraw: () => viewer.draw(),
      advise: (text) => viewer.advise(text),
      toolChanged: (tool) => viewer.toolChanged(tool),
      openPanel: (title) => viewer.panel.open(title),
      view: () => parametersOf(viewer),
      showView: (view) => showParameters(viewer, view),
    },
    api,
    scratch !== null,
    signal,
  );
}

/** The browser's storage; null if it is forbidden. */
function storeOfBrowser(): Storage | null {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

/** Class names of models, from layers "model/class". */
export function classesOf(layers: LayerInfo[]): string[] {
  const modelLayers = layers.map(({ id }) => id.split("/")).filter(([model, name]) => name !== undefined && model !== "quality");
  return [...new Set(modelLayers.map(([, name]) => decodeURIComponent(name!)))];
}
