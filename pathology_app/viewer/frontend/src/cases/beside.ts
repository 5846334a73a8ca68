// The slides beside the one shown: those of its case, else its neighbours in the list it was opened from.
import { box } from "../panel/elements";
import { Ahead } from "./ahead";
import { hrefOf, type Neighbour, partsOf, type Tray, trayOf } from "./api";

export interface BesideHost {
  /** Open one of the slides. */
  open(neighbour: Neighbour): void;
  /** The slides are listed. */
  listed(tray: Tray): void;
  note(text: string): void;
}

export class Beside {
  readonly element = box("tray");
  readonly ahead = new Ahead();
  tray: Tray | null;
  private host: BesideHost | null = null;
  private isLoading = false;
  /** Steps pressed before the slides were listed. */
  private waiting = 0;

  /**
   * @param slideId the slide shown.
   * @param url of the list.
   * @param known the list as another slide of it had it, until this one's is there.
   */
  constructor(
    private readonly slideId: string,
    private readonly url: string,
    known: Tray | null,
    private readonly signal: AbortSignal,
  ) {
    this.tray = known;
    this.element.setAttribute("role", "list");
  }

  begin(host: BesideHost): void {
    this.host = host;
    if (this.tray) {
      this.show(this.tray);
    }
  }

  /** List the slides. Once; later calls do nothing. */
  async load(): Promise<void> {
    if (this.isLoading) {
      return;
    }
    this.isLoading = true;
    try {
      this.show(await trayOf(this.url, this.signal));
    } catch (error) {
      if (!this.signal.aborted) {
        this.element.replaceChildren(`The slides of this case could not be listed. ${error instanceof Error ? error.message : ""}`);
      }
    }
  }

  /** Open the next or the previous slide. */
  step(by: 1 | -1): void {
    if (!this.tray) {
      this.waiting = by;
      return;
    }
    const next = this.neighbour(by);
    const list = this.tray.is_case ? "case" : "list";
    if (next) {
      this.host?.open(next);
    } else {
      this.host?.note(this.tray.slides.length < 2 ? `There is no other slide in this ${list}.` : `This is the ${by > 0 ? "last" : "first"} slide of the ${list}.`);
    }
  }

  /** Load the next slide, then the previous one. */
  async loadAhead(stage: HTMLElement): Promise<void> {
    for (const by of [1, -1] as const) {
      const next = this.neighbour(by);
      if (next && !this.signal.aborted) {
        await this.ahead.prepare(next.slide_id, stage, this.signal);
      }
    }
  }

  private neighbour(by: 1 | -1): Neighbour | null {
    const slides = this.tray?.slides ?? [];
    const at = slides.findIndex(({ slide_id }) => slide_id === this.slideId);
    return at < 0 ? null : (slides[at + by] ?? null);
  }

  private show(tray: Tray): void {
    this.tray = tray;
    this.element.replaceChildren(...tray.slides.map((slide) => this.card(slide)));
    this.host?.listed(tray);
    const shown = this.element.querySelector<HTMLElement>("[aria-current]")?.parentElement;
    this.element.scrollTop = Math.max(0, (shown?.offsetTop ?? 0) - this.element.clientHeight / 3);
    if (this.waiting) {
      const by = this.waiting as 1 | -1;
      this.waiting = 0;
      this.step(by);
    }
  }

  private card(slide: Neighbour): HTMLElement {
    const link = document.createElement("a");
    const isShown = slide.slide_id === this.slideId;
    const parts = partsOf(slide);
    link.href = hrefOf(slide);
    link.title = [slide.slide_id, parts].filter(Boolean).join(": ");
    link.append(thumbnailOf(slide.thumbnail_url), box("name", slide.slide_id), ...(parts ? [box("parts", parts)] : []));
    if (isShown) {
      link.setAttribute("aria-current", "page");
    }
    link.addEventListener("click", (event) => {
      if (event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey) {
        event.preventDefault();
        if (!isShown) {
          this.host?.open(slide);
        }
      }
    });
    const item = box("slide", link);
    item.setAttribute("role", "listitem");
    return item;
  }
}

/** A slide's thumbnail; without one, an empty frame. */
export function thumbnailOf(url: string | null): HTMLElement {
  const frame = box("thumbnail");
  if (url !== null) {
    const image = new Image();
    image.alt = "";
    image.loading = "lazy";
    image.src = url;
    frame.append(image);
  }
  return frame;
}
