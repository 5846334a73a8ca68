// The height that the page leaves to what shows slides.

const MARGIN_PX = 22;

/**
 * Tell the style sheet what stands above `element`, now and whenever the window changes.
 * @returns does it once more, for who has put something above.
 */
export function keepHeight(host: HTMLElement, element: HTMLElement, signal: AbortSignal): () => void {
  const fit = (): void => {
    const above = element.getBoundingClientRect().top + window.scrollY;
    host.style.setProperty("--above", `${Math.round(Math.max(0, above)) + MARGIN_PX}px`);
  };
  window.addEventListener("resize", fit, { signal });
  // Streamlit draws what stands above a moment later.
  const watching = new ResizeObserver(fit);
  watching.observe(document.body);
  watching.observe(host);
  signal.addEventListener("abort", () => watching.disconnect());
  fit();
  return fit;
}
