// Connects the record of viewed areas to the viewer of a slide.
import type { Point } from "../view/geometry";
import type { Viewer } from "../viewer";
import { Coverage } from "./coverage";

export interface Recorded {
  /** Whether the first tile is on the screen. */
  isDrawn(): boolean;
  note(text: string): void;
}

export function coverageOn(viewer: Viewer, url: string, { isDrawn, note }: Recorded): Coverage {
  const { navigation, sight, hotspotList, osd, data } = viewer;
  const host = {
    isDrawn,
    view: () => (navigation.isMoving() ? null : sight.look()),
    redraw: () => viewer.draw(),
    note,
    saw: (isInField: (at: Point) => boolean) => hotspotList.saw(isInField),
  };
  return new Coverage({ url }, data.slide, host, osd.navigator);
}
