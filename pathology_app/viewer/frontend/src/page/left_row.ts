// After Back, the focus returns to the link that was followed: in a list, to the row that was left.

const PREFIX = "gemslide.left ";
const OWN = "a.gs-go";
/** Time within which the list must be drawn again. */
const WAIT_MS = 15_000;
const TICK_MS = 100;

let endWaiting = (): void => undefined;

/** Note the link that leads away from this page. */
export function rememberLink(link: HTMLAnchorElement): void {
  try {
    window.sessionStorage.setItem(PREFIX + here(), link.getAttribute("href") ?? "");
  } catch {
    // Without storage, the focus stays where the browser puts it.
  }
}

/** Return the focus whenever the browser comes back to a page. */
export function watchBack(): void {
  window.addEventListener("popstate", returnFocus);
  const [entry] = performance.getEntriesByType("navigation");
  if ((entry as PerformanceNavigationTiming | undefined)?.type === "back_forward") {
    returnFocus();
  }
}

function returnFocus(): void {
  endWaiting();
  const href = remembered();
  if (!href) {
    return;
  }
  const place = here();
  const ends = performance.now() + WAIT_MS;
  const stop = new AbortController();
  const end = (): void => {
    window.clearInterval(timer);
    stop.abort();
  };
  const look = (): void => {
    if (here() !== place || performance.now() > ends) {
      end();
      return;
    }
    const link = [...document.querySelectorAll<HTMLAnchorElement>(OWN)].find((each) => each.getAttribute("href") === href);
    // The list may be drawn several times: until a person does something, the focus returns to it each time.
    if (link && (document.activeElement ?? document.body) === document.body) {
      link.closest<HTMLElement>("details:not([open])")?.querySelector("summary")?.click();
      link.focus(); // in vain until it is visible
    }
  };
  ["pointerdown", "keydown"].forEach((kind) => document.addEventListener(kind, end, { signal: stop.signal, capture: true }));
  const timer = window.setInterval(look, TICK_MS);
  endWaiting = end;
  // The viewer of the page that is left, or its button, may still hold the focus.
  (document.activeElement as HTMLElement | null)?.blur();
}

function remembered(): string | null {
  try {
    return window.sessionStorage.getItem(PREFIX + here());
  } catch {
    return null;
  }
}

function here(): string {
  return window.location.pathname + window.location.search;
}
