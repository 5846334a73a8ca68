// Annotations on the slide that a viewer shows.
import type { SlideViewer } from "../slide_viewer";
import type { LayerInfo } from "../types";
import { Annotations } from "./annotations";

/** @param signal ends them with the viewer. */
export function annotationsOn(viewer: SlideViewer, signal: AbortSignal): Annotations {
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

/** Names of the classes that models know, of layers "model/class". */
export function classesOf(layers: LayerInfo[]): string[] {
  const ofModels = layers.map(({ id }) => id.split("/")).filter(([of, name]) => name !== undefined && of !== "quality");
  return [...new Set(ofModels.map(([, name]) => decodeURIComponent(name!)))];
}
