// Search for annotations by class, note or author, with a keyboard-accessible list of results.
import { box, labelled } from "../../panel/elements";
import type { Annotation } from "../types";

const WAIT_MS = 250;

export class FoundList {
  readonly element: HTMLElement;
  private readonly input = document.createElement("input");
  private readonly list = document.createElement("ul");
  private timer: ReturnType<typeof setTimeout> | undefined;
  private searches = 0;

  constructor(
    private readonly find: (words: string) => Promise<Annotation[]>,
    private readonly goTo: (annotation: Annotation) => void,
  ) {
    [this.input.type, this.input.maxLength, this.input.placeholder] = ["search", 200, "class, note or name"];
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => void this.search(), WAIT_MS);
    });
    this.list.setAttribute("aria-label", "Annotations found");
    this.element = box("found", labelled("Find", this.input), this.list);
  }

  private async search(): Promise<void> {
    const words = this.input.value.trim();
    const search = ++this.searches;
    const matches = words ? await this.find(words) : [];
    if (search === this.searches) {
      this.list.replaceChildren(...(words && !matches.length ? [text("Nothing found.")] : matches.map((match) => this.row(match))));
    }
  }

  private row(annotation: Annotation): HTMLLIElement {
    const item = document.createElement("li");
    const go = document.createElement("button");
    go.type = "button";
    go.textContent = [annotation.class ?? "(no class)", annotation.note.replaceAll("\n", " ").slice(0, 80)].filter(Boolean).join(": ");
    go.title = `Go to this annotation; drawn by ${annotation.author}`;
    go.addEventListener("click", () => this.goTo(annotation));
    item.append(go);
    return item;
  }
}

function text(words: string): HTMLLIElement {
  const item = document.createElement("li");
  item.textContent = words;
  return item;
}
