// Links between the app's own pages, followed without loading the page anew. They are real links: a keyboard reaches
// each, and a new tab opens one. In a table, the whole row leads where its link does.
import type { Streamlit } from "./types";

const OWN = "a.gs-go";

let current: Streamlit<unknown> | null = null;

/** Takes over the clicks on the page's links; each tells Python the query that it leads to. */
export function catchClicks(component: Streamlit<unknown>): void {
  if (!current) {
    document.addEventListener("click", follow);
  }
  current = component;
}

function follow(event: MouseEvent): void {
  const link = linkOf(event.target);
  const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  // Where the component has left the page, the browser follows the link by itself.
  if (link && isPlain && current?.parentElement.isConnected && !event.defaultPrevented) {
    event.preventDefault();
    current.setTriggerValue("go", new URL(link.href).search);
  }
}

/** The link that was clicked, or that of the row that was; none where somebody has just marked text. */
function linkOf(target: EventTarget | null): HTMLAnchorElement | null {
  if (!(target instanceof Element)) {
    return null;
  }
  const link = target.closest<HTMLAnchorElement>("a");
  if (link) {
    return link.matches(OWN) ? link : null;
  }
  const isMarking = (window.getSelection()?.toString() ?? "") !== "";
  return isMarking ? null : (target.closest("tbody tr")?.querySelector<HTMLAnchorElement>(OWN) ?? null);
}
