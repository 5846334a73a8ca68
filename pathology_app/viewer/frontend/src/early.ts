// Shows a slide before its page is drawn: when the app is opened at a slide, while Streamlit still starts, and when a link
// to a slide is followed. The page's viewer then takes the slide over as it is.
import { answerOf, openingOf } from "./cases/api";
import type { SlideViewer } from "./slide_viewer";
import type { ViewerData } from "./types";

/** How often to look whether the page is drawn without a viewer: it then says why. */
const LOOK_MS = 250;
/** Looks for which the page must be at rest. */
const ENOUGH = 4;

export interface EarlyHost {
  /** Create a viewer in a place of its own. */
  create(data: ViewerData, place: HTMLElement): SlideViewer;
  /** Whether a page's viewer is already there. */
  hasViewer(): boolean;
  destroy(viewer: SlideViewer): void;
}

export class Early {
  private place: HTMLElement | null = null;
  private viewer: SlideViewer | null = null;
  private asked = new AbortController();
  private timer = 0;
  private restful = 0;
  /** Whether the link has named the slide. */
  private isNamed = false;

  constructor(private readonly host: EarlyHost) {}

  /** Show the slide that a link's query names. If it cannot be shown, its page says why. */
  async open(query: URLSearchParams): Promise<void> {
    this.end();
    const slideId = query.get("slide");
    if (!slideId) {
      return;
    }
    const { signal } = (this.asked = new AbortController());
    const data = await answerOf<ViewerData>(openingOf(slideId, query.get("model")), signal).catch(() => null);
    if (data && !signal.aborted && !this.host.hasViewer()) {
      this.place = document.createElement("div");
      this.place.className = "gemslide-early";
      putOver(this.place);
      document.body.append(this.place);
      (document.activeElement as HTMLElement | null)?.blur();
      this.viewer = this.host.create(data, this.place);
      this.timer = window.setInterval(() => this.look(slideId), LOOK_MS);
    }
  }

  /** Hand the viewer over to the page's component, if it shows the same; otherwise it ends. */
  take(data: ViewerData, parent: Node): SlideViewer | null {
    const { viewer } = this;
    this.asked.abort();
    if (!viewer?.shows(data)) {
      this.end();
      return null;
    }
    parent.appendChild(viewer.host);
    viewer.fit();
    this.leave();
    return viewer;
  }

  private look(slideId: string): void {
    const named = new URLSearchParams(window.location.search).get("slide");
    this.isNamed ||= named === slideId;
    const state = document.querySelector("[data-testid=stApp]")?.getAttribute("data-test-script-state");
    this.restful = this.isNamed && state === "notRunning" ? this.restful + 1 : 0;
    if (this.restful >= ENOUGH || (this.isNamed && named !== slideId)) {
      this.end();
    }
  }

  private end(): void {
    this.asked.abort();
    if (this.viewer) {
      this.host.destroy(this.viewer);
    }
    this.leave();
  }

  private leave(): void {
    window.clearInterval(this.timer);
    this.place?.remove();
    [this.place, this.viewer, this.restful, this.isNamed] = [null, null, 0, false];
  }
}

/** Place it below the line where the page will put the slide's name (html/style.py), in the page's colours (asgi.py). */
function putOver({ style }: HTMLElement): void {
  const top = window.innerWidth <= 900 ? "77.6px" : "48px";
  Object.assign(style, { position: "fixed", inset: `${top} 12px 0`, zIndex: "1000" });
  if (window.matchMedia("(prefers-color-scheme: dark)").matches) {
    const colours = { background: "#12151c", "secondary-background": "#1d212b", text: "#eceef4", primary: "#ff7fb2" };
    Object.entries(colours).forEach(([name, colour]) => style.setProperty(`--st-${name}-color`, colour));
  }
}
