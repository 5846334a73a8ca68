// The viewers that are alive, and how one takes the place of another. Streamlit calls a component again with new data on
// every rerun, and does not always say that a page was left.
import annotationsCss from "./annotations/style.css";
import type { Prepared } from "./cases/ahead";
import type { Neighbour, Tray } from "./cases/api";
import { isLeft, openBeside, pageFollowed } from "./cases/opening";
import casesCss from "./cases/style.css";
import { CompareViewer } from "./compare/viewer";
import { Early } from "./early";
import { exposeCompareHook, exposeHook } from "./hook";
import { canGo } from "./page/links";
import reviewCss from "./review/style.css";
import { type Emit, SlideViewer } from "./slide_viewer";
import css from "./style.css";
import type { CompareData, Streamlit, StreamlitComponent, ViewerData } from "./types";

type Parent = StreamlitComponent["parentElement"];

/** By the parent element that Streamlit gave them. */
const viewers = new Map<Parent, SlideViewer | CompareViewer>();
const early = new Early({
  create: (data, place) => createViewer(data, place, () => undefined),
  hasViewer: () => [...viewers.keys()].some((parent) => parent.isConnected),
  destroy,
});

/** Show the slide that a link's query names, before its page. */
export function openEarly(search: string): void {
  sweep();
  if (![...viewers.values()].some((viewer) => viewer instanceof SlideViewer)) {
    void early.open(new URLSearchParams(search));
  }
}

export function showSlide({ data, parentElement, setTriggerValue }: StreamlitComponent): void {
  const taken = viewers.has(parentElement) ? null : early.take(data, parentElement);
  if (taken) {
    forget(taken);
    viewers.set(parentElement, taken);
  }
  const viewer = viewers.get(parentElement);
  if (viewer instanceof SlideViewer && viewer.shows(data)) {
    viewer.update(data, setTriggerValue);
  } else if (viewer && isLeft(data.slide.slide_id)) {
    return;
  } else {
    viewer?.destroy();
    createViewer(data, parentElement, setTriggerValue);
  }
  sweep();
}

export function showCompared({ data, parentElement, setTriggerValue }: Streamlit<CompareData>): void {
  sweep();
  const viewer = viewers.get(parentElement);
  if (!(viewer instanceof CompareViewer) || !viewer.update(data)) {
    viewer?.destroy();
    const created = new CompareViewer(hostIn(parentElement), data, setTriggerValue);
    viewers.set(parentElement, created);
    exposeCompareHook(created);
  }
}

/** Destroy viewers whose page has been left. */
export function sweep(): void {
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

function hostIn(parentElement: Parent): HTMLElement {
  const host = document.createElement("div");
  host.className = "gemslide-viewer";
  const style = document.createElement("style");
  style.textContent = css + annotationsCss + casesCss + reviewCss;
  host.append(style);
  parentElement.append(host);
  return host;
}

function createViewer(data: ViewerData, parentElement: Parent, emit: Emit, prepared: Prepared | null = null, tray: Tray | null = null): SlideViewer {
  const open = (neighbour: Neighbour, from: SlideViewer): void => void switchTo(neighbour, from);
  const viewer = new SlideViewer(hostIn(parentElement), data, emit, { open, prepared, tray });
  viewers.set(parentElement, viewer);
  exposeHook(viewer, () => viewers.size);
  return viewer;
}

/** Show another slide in place of one, before its page is drawn. */
async function switchTo(neighbour: Neighbour, from: SlideViewer): Promise<void> {
  const { beside } = from;
  if (!beside || from.page.isLeaving || !canGo()) {
    return;
  }
  from.page.isLeaving = true;
  const opened = await openBeside(neighbour, beside, from.signal);
  const parentElement = parentOf(from);
  if (opened && parentElement) {
    from.destroy();
    const created = createViewer(opened.data, parentElement, from.emit, opened.prepared, beside.tray);
    from.page.passTo(created.page);
  } else {
    from.page.isLeaving = false;
  }
}

function destroy(viewer: SlideViewer): void {
  forget(viewer);
  viewer.destroy();
}

function forget(viewer: SlideViewer): void {
  const parentElement = parentOf(viewer);
  if (parentElement) {
    viewers.delete(parentElement);
  }
}

/** null if the viewer is not alive. */
function parentOf(viewer: SlideViewer): Parent | null {
  return [...viewers].find(([, each]) => each === viewer)?.[0] ?? null;
}
