// Connects annotations to the viewer of a slide.
import { parametersOf, showParameters } from "../view/parameters";
import type { Viewer } from "../viewer";
import type { Slide } from "../types";
import type { Surroundings, ToolChoice } from "./annotating";
import { Annotations } from "./controller";
import { Api } from "./storage/api";
import { ScratchApi } from "./scratch/api";
import { storeOfBrowser } from "../page/stores";

/** A slide on the screen. */
type Placed = Pick<Viewer, "osd" | "stage" | "sight" | "navigation"> & { data: { slide: Slide } };

/**
 * Annotations of a slide, and its measuring tools.
 * @param scratch in a reading without help, where annotations may not be shown, the reading's name: measurements are then
 * kept in the browser under it. null elsewhere.
 * @param signal aborted when the viewer is destroyed.
 */
export function annotationsIn(around: Surroundings, scratch: string | null, signal: AbortSignal): Annotations {
  const { slideId, width_px0, height_px0, mpp0 } = around;
  const api = scratch === null ? new Api(slideId) : new ScratchApi(storeOfBrowser(), `gemslide/measured/${scratch}/${slideId}`, { width_px0, height_px0, mpp0 });
  return new Annotations(around, api, scratch !== null, signal);
}

/** Annotations of the viewer of one slide. */
export function annotationsOn(viewer: Viewer, scratch: string | null, signal: AbortSignal): Annotations {
  const around = {
    ...placed(viewer),
    isActive: () => true,
    redraw: () => viewer.draw(),
    advise: (text: string) => viewer.advise(text),
    toolChanged: (tool: ToolChoice | null) => viewer.toolChanged(tool),
    openPanel: (title: string) => viewer.panel.open(title),
    view: () => parametersOf(viewer),
    showView: (view: string) => showParameters(viewer, view),
  };
  return annotationsIn(around, scratch, signal);
}

/** Where annotations are on the screen, and how the view moves to them. */
export function placed({ osd, stage, sight, navigation, data }: Placed): Omit<Surroundings, "isActive" | "redraw" | "advise" | "toolChanged" | "openPanel" | "view" | "showView"> {
  const { slide_id: slideId, mpp0, levels } = data.slide;
  const { width_px: width_px0, height_px: height_px0 } = levels[0]!;
  return {
    osd, stage, slideId, width_px0, height_px0, mpp0,
    transform: () => navigation.transform(),
    slidePoint: (event) => sight.pointOf(event),
    middle: () => sight.middle(),
    showBox: (...box) => navigation.showBox(...box),
    panBy: (right, down) => navigation.pan(right / stage.clientWidth, down / stage.clientHeight, true),
  };
}
