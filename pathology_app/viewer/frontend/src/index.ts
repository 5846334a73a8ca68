// Entry points of the Streamlit components. Streamlit calls them again with new data on every rerun.
import { watchConnection } from "./page/connection";
import { catchClicks } from "./page/links";
import { watchRows } from "./page/rows";
import { listUnsaved } from "./page/unsaved";
import type { CompareData, Streamlit, StreamlitComponent } from "./types";
import { openEarly, showCompared, showSlide, sweep } from "./viewers";

export { calibration } from "./calibration/page";
export { questionnaire } from "./reading/form";
export { readingClock } from "./review/clock";
export { searchBox } from "./page/search_box";

/** Runs on every page, so that a viewer is destroyed when its page is left, not only when another viewer opens. */
export function followLinks(component: Streamlit<unknown>): void {
  sweep();
  watchConnection();
  catchClicks(component, openEarly);
}

export function slideViewer(component: StreamlitComponent): () => void {
  showSlide(component);
  return sweep;
}

export function compareViewer(component: Streamlit<CompareData>): () => void {
  showCompared(component);
  return sweep;
}

// On the sign-out page, which has no components.
listUnsaved();
// On the app's pages, which Streamlit is still to draw (serving/first_page.py).
if (document.querySelector("script[data-gemslide-page]")) {
  watchRows(); // a key must not be lost while the page is still being drawn
  openEarly(window.location.search);
}
