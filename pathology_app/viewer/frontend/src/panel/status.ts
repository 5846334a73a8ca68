// What is said over the slide's top left corner: what is wrong with it, for as long as it is shown, and where one is now.

export class Status {
  readonly element = document.createElement("div");
  private readonly here = document.createElement("div");
  private readonly advice = document.createElement("div");
  private readonly image = document.createElement("div");
  private readonly notes = new Set<string>();

  constructor() {
    this.element.className = "status panel";
    this.element.setAttribute("role", "status");
    this.image.className = "image-changed";
  }

  /** Say something about the slide, once. */
  note(text: string): void {
    if (!this.notes.has(text)) {
      this.notes.add(text);
      const line = document.createElement("div");
      line.textContent = text;
      this.element.append(line);
    }
  }

  /** Say what the tool in hand waits for; nothing where none is. */
  advise(text: string): void {
    this.line(this.advice, text);
  }

  /** Say how the picture differs from the slide's own; nothing where it does not. */
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

  /** Say where one is; nothing where one is nowhere in particular. */
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
