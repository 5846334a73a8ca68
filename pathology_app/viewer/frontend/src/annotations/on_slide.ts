// Connects annotations to the viewer of a slide.
import type { Viewer } from "../viewer";
import type { LayerInfo } from "../types";
import { Annotations } from "./controller";

/** @param signal aborted when the viewer is destroyed. */
export function annotationsOn(viewer: Viewer, signal: AbortSignal): Annotations {
  const { navigation, sight, stage, osd } = viewer;
  const { slide_id: slideId, mpp0, levels } = viewer.data.slide;
  const { width_px: width_px0, height_px: height_px0 } = levels[0]!;
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
      took: () => viewer.toolbox.layDown(),
      openPanel: () => viewer.panel.open("Annotations"),
    },
    signal,
  );
}

/** Class names of models, from layers "model/class". */
export function classesOf(layers: LayerInfo[]): string[] {
  const modelLayers = layers.map(({ id }) => id.split("/")).filter(([model, name]) => name !== undefined && model !== "quality");
  return [...new Set(modelLayers.map(([, name]) => decodeURIComponent(name!)))];
}
