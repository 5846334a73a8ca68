// Height that the page leaves for a slide viewer.

/** What a page has below the viewer. */
const BELOW_PX = 22;

/**
 * Set the CSS variable `--above` to the height above `element`, now and whenever the page around it changes.
 * @returns a function that sets it again, for an element that is moved to another place.
 */
export function keepHeight(host: HTMLElement, element: HTMLElement, signal: AbortSignal, below_px = BELOW_PX): () => void {
  const sizes = new ResizeObserver(() => fit());
  const watched = new WeakSet<Element>();
  const fit = (): void => {
    let above = element.getBoundingClientRect().top;
    for (const around of ancestors(host)) {
      above += around.scrollTop;
      if (!watched.has(around)) {
        watched.add(around);
        sizes.observe(around, { box: "border-box" }); // a padding moves the element, too
      }
    }
    host.style.setProperty("--above", `${Math.round(Math.max(0, above)) + below_px}px`);
  };
  let isWaiting = false;
  /** Fit once after all changes of this frame. */
  const soon = (): void => {
    if (!isWaiting && !signal.aborted) {
      isWaiting = true;
      requestAnimationFrame(() => {
        isWaiting = false;
        fit();
      });
    }
  };
  window.addEventListener("resize", fit, { signal });
  // Streamlit draws the content above a moment later, and replaces it: the element then moves without changing its size, but
  // something around it changes. A component above draws inside its own shadow root, which no MutationObserver out here sees.
  const changes = new MutationObserver(soon);
  changes.observe(document.body, { childList: true, subtree: true });
  signal.addEventListener("abort", () => [sizes, changes].forEach((observer) => observer.disconnect()));
  fit();
  return fit;
}

/** An element and all around it, also outside the shadow roots that it is in. */
function* ancestors(element: Element): Generator<Element> {
  for (let at: Node | null = element; at; at = at instanceof ShadowRoot ? at.host : at.parentNode) {
    if (at instanceof Element) {
      yield at;
    }
  }
}
