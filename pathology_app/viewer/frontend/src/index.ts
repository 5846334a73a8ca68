// Entry points of the Streamlit components. Streamlit calls them again with new data on every rerun.
import { CompareViewer } from "./compare/viewer";
import { watchConnection } from "./page/connection";
import { exposeCompareHook, exposeHook } from "./hook";
import { catchClicks } from "./page/links";
import { watchRows } from "./page/rows";
import { listUnsaved } from "./page/unsaved";
import reviewCss from "./review/style.css";
import { SlideViewer } from "./slide_viewer";
import annotationsCss from "./annotations/style.css";
import css from "./style.css";
import type { CompareData, Streamlit, StreamlitComponent } from "./types";

export { calibration } from "./calibration/page";
export { questionnaire } from "./reading/form";
export { readingClock } from "./review/clock";
export { searchBox } from "./page/search_box";

/** Live viewers, by the parent element that Streamlit gave them. */
const viewers = new Map<StreamlitComponent["parentElement"], SlideViewer | CompareViewer>();

function hostIn(parentElement: StreamlitComponent["parentElement"]): HTMLElement {
  const host = document.createElement("div");
  host.className = "gemslide-viewer";
  const style = document.createElement("style");
  style.textContent = css + annotationsCss + reviewCss;
  host.append(style);
  parentElement.append(host);
  return host;
}

function createViewer({ data, parentElement, setTriggerValue }: StreamlitComponent): SlideViewer {
  const viewer = new SlideViewer(hostIn(parentElement), data, setTriggerValue);
  exposeHook(viewer, () => viewers.size);
  return viewer;
}

/** Destroy viewers whose page has been left: Streamlit does not always call the clean-up function. */
function sweep(): void {
  for (const [parentElement, viewer] of viewers) {
    if (!parentElement.isConnected) {
      viewer.destroy();
      viewers.delete(parentElement);
    }
  }
}

/** Runs on every page, so that a viewer is destroyed when its page is left, not only when another viewer opens. */
export function followLinks(component: Streamlit<unknown>): void {
  sweep();
  watchConnection();
  watchRows();
  catchClicks(component);
}

export function slideViewer(component: StreamlitComponent): () => void {
  const { data, parentElement, setTriggerValue } = component;
  sweep();
  const viewer = viewers.get(parentElement);
  // If content becomes hidden (a reading), rebuild the viewer, so that no list, outline or tool remains.
  const isSame = viewer instanceof SlideViewer && viewer.data.slide.tile_url === data.slide.tile_url && viewer.isWithoutHelp === (data.hotspots_note === null);
  if (isSame) {
    viewer.update(data, setTriggerValue);
  } else {
    viewer?.destroy();
    viewers.set(parentElement, createViewer(component));
  }
  return sweep;
}

export function compareViewer({ data, parentElement }: Streamlit<CompareData>): () => void {
  sweep();
  const viewer = viewers.get(parentElement);
  if (!(viewer instanceof CompareViewer) || !viewer.update(data)) {
    viewer?.destroy();
    const created = new CompareViewer(hostIn(parentElement), data);
    viewers.set(parentElement, created);
    exposeCompareHook(created);
  }
  return sweep;
}

// On the sign-out page, which has no components.
listUnsaved();
