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
  window.addEventListener("resize", fit, { signal });
  // Streamlit draws the content above a moment later.
  const observer = new ResizeObserver(fit);
  observer.observe(document.body);
  observer.observe(host);
  signal.addEventListener("abort", () => observer.disconnect());
  fit();
  return fit;
}
