// After Back, the focus returns to the link that was followed: in a list, to the row that was left.

const PREFIX = "gemslide.left ";
const OWN = "a.gs-go";
/** The page's button that leads back to its list. */
const BACK = ".st-key-back";
/** Parameters that name a slide in links. */
const SLIDES = ["slide", "study_slide"];
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

/** Go back to the list that a slide was opened from, and to the slide's row in it. */
export function backToList(slideId: string): void {
  const back = document.querySelector<HTMLButtonElement>(`${BACK} button`);
  if (back) {
    back.click();
    focusWhenDrawn((link) => SLIDES.some((name) => new URL(link.href).searchParams.get(name) === slideId), null);
  }
}

function returnFocus(): void {
  const href = remembered();
  if (href) {
    focusWhenDrawn((link) => link.getAttribute("href") === href, here());
  }
}

/** @param place the page that the row is on; null: the one that is opened now. */
function focusWhenDrawn(isIt: (link: HTMLAnchorElement) => boolean, place: string | null): void {
  endWaiting();
  const ends = performance.now() + WAIT_MS;
  const stop = new AbortController();
  const end = (): void => {
    window.clearInterval(timer);
    stop.abort();
  };
  const look = (): void => {
    if ((place !== null && here() !== place) || performance.now() > ends) {
      end();
      return;
    }
    const link = [...document.querySelectorAll<HTMLAnchorElement>(OWN)].find(isIt);
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
