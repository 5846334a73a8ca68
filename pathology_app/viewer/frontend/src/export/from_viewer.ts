// The picture of what a viewer shows, with what has to be said of it.
import { magnificationText } from "../scale_bar";
import type { SlideViewer } from "../slide_viewer";
import { save } from "./export_menu";
import { pictureOf } from "./view_picture";

/** Save it as a file. */
export function exportView(viewer: SlideViewer): void {
  const { slide } = viewer.data;
  const um_per_px = slide.mpp0 / viewer.navigation.transform().scale;
  const { x, y } = viewer.sight.middle();
  const layers = viewer.layers.shown.map(
    ({ info, style }) => `${info.group}: ${info.label}${info.is_mask ? "" : `, threshold ${style.threshold.toFixed(2)}`}`,
  );
  const picture = pictureOf({
    sheets: [viewer.osd.drawer.canvas as HTMLCanvasElement, viewer.picture.canvas],
    ground: getComputedStyle(viewer.stage).backgroundColor,
    ratio: window.devicePixelRatio,
    um_per_px,
    legend: viewer.layers.legend,
    said: [
      `Slide ${slide.slide_id}, ${magnificationText(um_per_px, slide.mpp0)}`,
      `Middle: ${Math.round(x * slide.mpp0)} µm right, ${Math.round(y * slide.mpp0)} µm down from the slide's corner`,
      ...(viewer.image.changes ? [viewer.image.changes] : []),
      ...layers,
    ],
  });
  save(picture, `${slide.slide_id}_view.png`);
}
