// Height that the page leaves for a slide viewer.

/** What a page has below the viewer. */
const BELOW_PX = 22;

/**
 * Set the CSS variable `--above` to the height above `element`, now and whenever the window changes.
 * @returns a function that updates it again, for callers that add content above.
 */
export function keepHeight(host: HTMLElement, element: HTMLElement, signal: AbortSignal, below_px = BELOW_PX): () => void {
  const fit = (): void => {
    const above = element.getBoundingClientRect().top + window.scrollY;
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
  // Streamlit draws the content above a moment later, and replaces it: the element then moves, and nothing changes its size.
  const [sizes, changes] = [new ResizeObserver(fit), new MutationObserver(soon)];
  sizes.observe(document.body);
  sizes.observe(host);
  changes.observe(document.body, { childList: true, subtree: true });
  signal.addEventListener("abort", () => [sizes, changes].forEach((observer) => observer.disconnect()));
  fit();
  return fit;
}
