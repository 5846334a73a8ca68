// Links between the app's own pages, followed without reloading. They are real links: the keyboard reaches them, and they
// can be opened in a new tab. In a table, a click anywhere in a row follows the row's link.
import type { Streamlit } from "../types";
import { rememberLink, watchBack } from "./left_row";

const OWN = "a.gs-go";

let current: Streamlit<unknown> | null = null;
let followed: (search: string) => void = () => undefined;

/**
 * Handle clicks on the page's links: send the query of the link to Python.
 * @param follows called with the query of each link that is followed.
 */
export function catchClicks(component: Streamlit<unknown>, follows: (search: string) => void): void {
  followed = follows;
  if (!current) {
    document.addEventListener("click", follow);
    watchBack();
  }
  current = component;
}

/** Whether Streamlit has drawn the page, which can then go elsewhere. */
export function canGo(): boolean {
  return current?.parentElement.isConnected ?? false;
}

/** Go to the page of a query, as if a link to it were followed. */
export function goTo(query: Record<string, string>): void {
  current?.setTriggerValue("go", `?${new URLSearchParams(query).toString()}`);
}

function follow(event: MouseEvent): void {
  const link = linkOf(event.target);
  const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  // If the component has left the page, the browser follows the link itself.
  if (link && isPlain && current?.parentElement.isConnected && !event.defaultPrevented) {
    event.preventDefault();
    rememberLink(link);
    const { search } = new URL(link.href);
    current.setTriggerValue("go", search);
    followed(search);
  }
}

/** The clicked link, or the link of the clicked row; null if the user has just selected text. */
function linkOf(target: EventTarget | null): HTMLAnchorElement | null {
  if (!(target instanceof Element)) {
    return null;
  }
  const link = target.closest<HTMLAnchorElement>("a");
  if (link) {
    return link.matches(OWN) ? link : null;
  }
  const hasSelection = (window.getSelection()?.toString() ?? "") !== "";
  return hasSelection ? null : (target.closest("tbody tr")?.querySelector<HTMLAnchorElement>(OWN) ?? null);
}
