// The column beside the slide: one section for each kind of thing that can be done with it.
import { box } from "./elements";

export class SidePanel {
  readonly element = box("side");
  private readonly sections = new Map<string, HTMLDetailsElement>();

  constructor(private readonly changed: () => void) {
    this.element.setAttribute("role", "complementary");
    this.element.setAttribute("aria-label", "Layers, hotspots and more");
  }

  /** Add a section, below those that are there. */
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

  open(title: string): void {
    const section = this.sections.get(title);
    if (section) {
      section.open = true;
      this.element.hidden = false;
      this.changed();
    }
  }

  /** Leave the whole width to the slide, or take some of it back. */
  toggle(): void {
    this.element.hidden = !this.element.hidden;
    this.changed();
  }
}
