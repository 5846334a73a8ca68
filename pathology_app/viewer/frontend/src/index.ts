// Entry points of the Streamlit components. Streamlit calls them again with new data on every rerun.
import type { Prepared } from "./cases/ahead";
import type { Neighbour, Tray } from "./cases/api";
import { isLeft, openBeside, pageFollowed } from "./cases/opening";
import casesCss from "./cases/style.css";
import { CompareViewer } from "./compare/viewer";
import { watchConnection } from "./page/connection";
import { exposeCompareHook, exposeHook } from "./hook";
import { catchClicks } from "./page/links";
import { watchRows } from "./page/rows";
import { listUnsaved } from "./page/unsaved";
import reviewCss from "./review/style.css";
import { type Emit, SlideViewer } from "./slide_viewer";
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
  style.textContent = css + annotationsCss + casesCss + reviewCss;
  host.append(style);
  parentElement.append(host);
  return host;
}

function createViewer({ data, parentElement, setTriggerValue }: StreamlitComponent, prepared: Prepared | null = null, tray: Tray | null = null): void {
  const open = (neighbour: Neighbour, from: SlideViewer): void => void switchTo(neighbour, from, parentElement, setTriggerValue);
  const viewer = new SlideViewer(hostIn(parentElement), data, setTriggerValue, { open, prepared, tray });
  viewers.set(parentElement, viewer);
  exposeHook(viewer, () => viewers.size);
}

/** Slides that are being opened in place of these. */
const opening = new WeakSet<SlideViewer>();

/** Show another slide in place of one, before its page is drawn. */
async function switchTo(neighbour: Neighbour, from: SlideViewer, parentElement: StreamlitComponent["parentElement"], setTriggerValue: Emit): Promise<void> {
  const { beside } = from;
  if (!beside || opening.has(from)) {
    return;
  }
  opening.add(from);
  const opened = await openBeside(neighbour, beside, from.signal);
  if (opened && viewers.get(parentElement) === from) {
    from.destroy();
    createViewer({ data: opened.data, parentElement, setTriggerValue }, opened.prepared, beside.tray);
  }
}

/** Destroy viewers whose page has been left: Streamlit does not always call the clean-up function. */
function sweep(): void {
  for (const [parentElement, viewer] of viewers) {
    if (!parentElement.isConnected) {
      viewer.destroy();
      viewers.delete(parentElement);
    }
  }
  if (![...viewers.values()].some((viewer) => viewer instanceof SlideViewer && viewer.data.is_partial)) {
    pageFollowed();
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
  const viewer = viewers.get(parentElement);
  // If content becomes hidden (a reading), rebuild the viewer, so that no list, outline or tool remains.
  const isSame = viewer instanceof SlideViewer && viewer.data.slide.tile_url === data.slide.tile_url && viewer.isWithoutHelp === (data.hotspots_note === null);
  if (!isSame && viewer && isLeft(data.slide.slide_id)) {
    return sweep;
  }
  if (isSame) {
    viewer.update(data, setTriggerValue);
  } else {
    viewer?.destroy();
    createViewer(component);
  }
  sweep();
  return sweep;
}

export function compareViewer({ data, parentElement, setTriggerValue }: Streamlit<CompareData>): () => void {
  sweep();
  const viewer = viewers.get(parentElement);
  if (!(viewer instanceof CompareViewer) || !viewer.update(data)) {
    viewer?.destroy();
    const created = new CompareViewer(hostIn(parentElement), data, setTriggerValue);
    viewers.set(parentElement, created);
    exposeCompareHook(created);
  }
  return sweep;
}

// On the sign-out page, which has no components.
listUnsaved();
