// Panel beside the slide, with one collapsible section per topic.
import { box } from "./elements";

export class SidePanel {
  readonly element = box("side");
  private readonly sections = new Map<string, HTMLDetailsElement>();
  private readonly empty = new Set<string>();

  constructor(private readonly changed: () => void) {
    this.element.setAttribute("role", "complementary");
    this.element.setAttribute("aria-label", "Layers, hotspots and more");
  }

  /** Append a section. */
  add(title: string, content: HTMLElement, isOpen = true): HTMLDetailsElement {
    const [details, summary] = [document.createElement("details"), document.createElement("summary")];
    summary.textContent = title;
    details.className = "section";
    details.open = isOpen;
    details.append(summary, content);
    this.sections.set(title, details);
    this.element.append(details);
    return details;
  }

  retitle(title: string, text: string): void {
    const summary = this.sections.get(title)?.querySelector("summary");
    if (summary && summary.textContent !== text) {
      summary.textContent = text;
    }
  }

  /** Fold sections that have become empty, and unfold those that have content again. */
  fold(isEmpty: Record<string, boolean>): void {
    for (const [title, now] of Object.entries(isEmpty)) {
      const section = this.sections.get(title);
      if (section && now !== this.empty.has(title)) {
        section.open = !now;
        this.empty[now ? "add" : "delete"](title);
      }
    }
  }

  open(title: string): void {
    const section = this.sections.get(title);
    if (section) {
      section.open = true;
      this.element.hidden = false;
      // Scroll the panel, and not the page.
      this.element.scrollTop = section.offsetTop - this.element.offsetTop;
      this.changed();
    }
  }

  /** Show or hide the panel; hidden, it leaves the whole width to the slide. */
  toggle(): void {
    this.element.hidden = !this.element.hidden;
    this.changed();
  }
}
