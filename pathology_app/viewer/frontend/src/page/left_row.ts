// After Back, the focus returns to the link that was followed: in a list, to the row that was left.

const PREFIX = "gemslide.left ";
const OWN = "a.gs-go";
/** Time within which the list must be drawn again. */
const WAIT_MS = 15_000;

let waiting: MutationObserver | null = null;

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
  waiting?.disconnect();
  const href = remembered();
  if (!href) {
    return;
  }
  const place = here();
  const ends = performance.now() + WAIT_MS;
  const observer = new MutationObserver(() => look());
  const look = (): void => {
    const link = [...document.querySelectorAll<HTMLAnchorElement>(OWN)].find((each) => each.getAttribute("href") === href);
    if (link && here() === place) {
      link.focus();
    }
    if (link || here() !== place || performance.now() > ends) {
      observer.disconnect();
    }
  };
  // The page that is being left may have the same link: wait until it has changed.
  observer.observe(document.body, { childList: true, subtree: true });
  waiting = observer;
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
