// Messages in the slide's top left corner: problems with the slide, kept while it is shown, and the current position.

export class Status {
  readonly element = document.createElement("div");
  private readonly here = document.createElement("div");
  private readonly advice = document.createElement("div");
  private readonly said = document.createElement("div");
  private readonly slide = document.createElement("div");
  private readonly image = document.createElement("div");
  private readonly notes = new Set<string>();

  constructor() {
    this.element.className = "status panel";
    this.element.setAttribute("role", "status");
    this.image.className = "image-changed";
    this.slide.className = "opening";
  }

  /** Show a note about the slide; repeated notes are ignored. */
  note(text: string): void {
    if (!this.notes.has(text)) {
      this.notes.add(text);
      const line = document.createElement("div");
      line.textContent = text;
      this.element.append(line);
    }
  }

  /** Show the hint of the active tool; "" removes it. */
  advise(text: string): void {
    this.line(this.advice, text);
  }

  /** Show a message for the moment; "" removes it. */
  say(text: string): void {
    this.line(this.said, text);
  }

  /** Name the slide while its page is still to follow; null: the page names it. */
  opening(slideId: string | null): void {
    this.line(this.slide, slideId ?? "");
  }

  /** Show how the image has been adjusted; "" if it has not. */
  imageChanged(text: string): void {
    this.line(this.image, text);
  }

  private line(element: HTMLElement, text: string): void {
    element.textContent = text;
    if (text && !element.isConnected) {
      this.element.append(element);
    } else if (!text) {
      element.remove();
    }
  }

  /** Show the current position, such as a hotspot; "" removes it. */
  place(text: string): void {
    if (this.here.textContent !== text) {
      this.here.textContent = text;
    }
    if (text && !this.here.isConnected) {
      this.element.prepend(this.here);
    } else if (!text) {
      this.here.remove();
    }
  }
}
