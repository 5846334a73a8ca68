// What is said over the slide while a tool is in hand: the last message, and how the tool works.

export class Advice {
  private shown = "";
  /** The last message, until the next click. */
  private message = "";

  /**
   * @param advise shows a text; "" removes it.
   * @param hint how the tool in hand works; null without one.
   */
  constructor(
    private readonly advise: (text: string) => void,
    private readonly hint: () => string | null,
  ) {}

  say(text: string): void {
    this.message = text;
    this.show();
  }

  forget(): void {
    this.message = "";
  }

  show(): void {
    const hint = this.hint();
    const text = hint === null ? "" : [this.message, hint].filter(Boolean).join(" ");
    if (text !== this.shown) {
      this.shown = text;
      this.advise(text);
    }
  }
}
