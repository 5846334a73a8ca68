// Chooses a slide by its thumbnail: a list that narrows while the user types, with the slides of the case first.
import { box, button } from "../panel/elements";
import { answerOf, type Neighbour, partsOf } from "./api";
import { thumbnailOf } from "./beside";

/** Delay after the last key before slides are searched. */
const PAUSE_MS = 120;

interface Found extends Omit<Neighbour, "query"> {
  /** "same block", "same case"; "" for others. */
  relation: string;
}

const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export class SlidePicker {
  readonly element: HTMLButtonElement;
  readonly dialog = document.createElement("dialog");
  private readonly input = document.createElement("input");
  private readonly list = box("tray");
  private readonly state = box("hint");
  private timer = 0;
  private asked = new AbortController();
  /** The words that the slides in the list were found for; null before the first answer. */
  private listed: string | null = null;

  /**
   * @param beside the slide whose case comes first.
   * @param choose called with the slide's name.
   */
  constructor(
    private readonly beside: string,
    private readonly choose: (slideId: string) => void,
    signal: AbortSignal,
  ) {
    this.element = button("Add a slide", "Choose another slide to show beside these (s)", () => this.open());
    this.input.type = "search";
    this.input.placeholder = "Part of a name, block or stain";
    this.input.setAttribute("aria-label", "Find a slide");
    this.input.maxLength = 100;
    this.input.addEventListener("input", () => {
      window.clearTimeout(this.timer);
      this.timer = window.setTimeout(() => void this.find(), PAUSE_MS);
    });
    this.state.setAttribute("role", "status");
    this.dialog.className = "picker";
    this.dialog.setAttribute("aria-label", "Add a slide");
    this.dialog.addEventListener("keydown", (event) => this.press(event));
    this.dialog.append(box("group", this.input, button("Close", "Close (Esc)", () => this.dialog.close())), this.state, this.list);
    signal.addEventListener("abort", () => this.asked.abort());
  }

  open(): void {
    this.dialog.showModal();
    this.input.focus();
    this.input.select();
    void this.find();
  }

  private async find(): Promise<void> {
    this.asked.abort();
    this.asked = new AbortController();
    const { signal } = this.asked;
    const words = this.input.value;
    const query = new URLSearchParams({ words, beside: this.beside });
    try {
      const { slides } = await answerOf<{ slides: Found[] }>(`/find/slides.json?${query.toString()}`, signal);
      this.list.replaceChildren(...slides.map((slide) => this.card(slide)));
      this.listed = words;
      this.state.textContent = slides.length ? "" : "No slide's name contains all these words.";
    } catch (error) {
      if (!signal.aborted) {
        this.state.textContent = error instanceof Error ? error.message : "";
      }
    }
  }

  private card(slide: Found): HTMLElement {
    const card = button("", slide.slide_id, () => {
      this.dialog.close();
      this.choose(slide.slide_id);
    });
    const parts = [partsOf(slide), slide.relation].filter(Boolean).join(" · ");
    card.removeAttribute("aria-label");
    card.append(thumbnailOf(slide.thumbnail_url), box("name", slide.slide_id), ...(parts ? [box("parts", parts)] : []));
    return card;
  }

  /** Take the first slide that the words in the field find, and never the first of an older list. */
  private async takeFirst(): Promise<void> {
    const words = this.input.value;
    if (this.listed !== words) {
      window.clearTimeout(this.timer);
      await this.find();
    }
    if (this.dialog.open && this.listed === words && this.input.value === words) {
      this.list.querySelector("button")?.click();
    }
  }

  /** Arrows move between the slides, Enter in the field takes the first. */
  private press(event: KeyboardEvent): void {
    event.stopPropagation(); // keys typed here are not commands of the page
    const cards = [...this.list.querySelectorAll("button")];
    const at = cards.indexOf(event.composedPath()[0] as HTMLButtonElement);
    const isInField = event.composedPath()[0] === this.input;
    if (isInField && event.key === "Enter") {
      void this.takeFirst();
    } else if (isInField ? event.key === "ArrowDown" : at >= 0 && event.key in STEPS) {
      event.preventDefault();
      const to = isInField ? 0 : at + STEPS[event.key]!;
      (to < 0 ? this.input : cards[Math.min(to, cards.length - 1)])?.focus();
    }
  }
}
