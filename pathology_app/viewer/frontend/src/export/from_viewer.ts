// Exports a viewer's current view as an image with a caption.
import { thresholdText, tickTexts } from "../layers/values";
import { magnificationText } from "../view/scale_bar";
import type { Viewer } from "../viewer";
import { save } from "./menu";
import { pictureOf } from "./image";

/** Save the current view as a file. */
export function exportView(viewer: Viewer): void {
  const { slide } = viewer.data;
  const um_per_px = slide.mpp0 / viewer.navigation.transform().scale;
  const { x, y } = viewer.sight.middle();
  const layers = viewer.layers.shown.map(({ info, style }) => {
    const range = info.unit ? `, colours up to ${tickTexts(info)[2]} ${info.unit}` : "";
    return `${info.group}: ${info.label}${info.is_mask ? "" : `, threshold ${thresholdText(style.threshold, info)}${range}`}`;
  });
  const notes = new Set(viewer.layers.legend.map(({ note }) => note).filter(Boolean));
  const image = pictureOf({
    sheets: [viewer.osd.drawer.canvas as HTMLCanvasElement, viewer.picture.canvas],
    ground: getComputedStyle(viewer.stage).backgroundColor,
    ratio: window.devicePixelRatio,
    um_per_px,
    legend: viewer.layers.legend,
    caption: [
      `Slide ${slide.slide_id}, ${magnificationText(um_per_px, slide.mpp0)}`,
      `Centre: ${Math.round(x * slide.mpp0)} µm right, ${Math.round(y * slide.mpp0)} µm down from the slide's top left corner`,
      ...(viewer.focus ? [`Focal plane: ${viewer.focus.text}`] : []),
      ...(viewer.image.changes ? [viewer.image.changes] : []),
      ...layers,
      ...notes,
    ],
  });
  save(image, `${slide.slide_id}_view.png`);
}
