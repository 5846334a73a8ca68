// Asks for the text of a text annotation, where it was placed.
import { box, button, labelled } from "../panel/elements";

const MAX_LENGTH = 2000;

export class TextPrompt {
  readonly element = document.createElement("dialog");
  private readonly input = document.createElement("textarea");
  private done: ((text: string) => void) | null = null;

  constructor() {
    [this.input.rows, this.input.maxLength] = [2, MAX_LENGTH];
    this.element.className = "others";
    this.element.setAttribute("aria-label", "Text on the slide");
    this.element.append(labelled("Text", this.input), box("group", button("Place", "Place this text (Ctrl + Enter)", () => this.place()), button("Cancel", "Place no text", () => this.element.close())));
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        this.place();
      }
    });
    this.element.addEventListener("close", () => (this.done = null));
  }

  ask(done: (text: string) => void): void {
    this.done = done;
    this.input.value = "";
    this.element.showModal();
    this.input.focus();
  }

  private place(): void {
    const [text, { done }] = [this.input.value.trim(), this];
    if (text) {
      this.element.close();
      done?.(text);
    }
  }
}
