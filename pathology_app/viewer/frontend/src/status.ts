// What is said over the slide's top left corner: what is wrong with it, for as long as it is shown, and where one is now.

export class Status {
  readonly element = document.createElement("div");
  private readonly here = document.createElement("div");
  private readonly advice = document.createElement("div");
  private readonly notes = new Set<string>();

  constructor() {
    this.element.className = "status panel";
    this.element.setAttribute("role", "status");
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
    this.advice.textContent = text;
    if (text && !this.advice.isConnected) {
      this.element.append(this.advice);
    } else if (!text) {
      this.advice.remove();
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
