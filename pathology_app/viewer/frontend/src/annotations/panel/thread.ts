// Answers under the selected annotation, with who and when, and a field for another one.
import { box, button } from "../../panel/elements";
import { type AnnotationApi, Refused } from "../storage/api";
import type { Model } from "../storage/model";
import type { Annotation, Content } from "../types";
import { timeText } from "./time";

export class Thread {
  readonly element = box("thread");
  private readonly list = document.createElement("ul");
  private readonly input = document.createElement("textarea");
  private readonly form: HTMLElement;
  private replies: Annotation[] = [];
  private id: string | null = null;
  private shown = "";

  constructor(
    private readonly api: AnnotationApi,
    private readonly model: Model,
    private readonly answer: (parent: string, text: string) => void,
  ) {
    [this.input.rows, this.input.maxLength, this.input.placeholder] = [1, 2000, "Answer"];
    this.input.setAttribute("aria-label", "Answer");
    this.list.setAttribute("aria-label", "Answers");
    this.form = box("group", this.input, button("Answer", "Answer under this annotation", () => this.send()));
    this.element.append(this.list, this.form);
  }

  /** @param change the slide's counter: answers are asked for again when it has changed. */
  show(id: string | null, change: number, mayAnswer: boolean): void {
    this.element.hidden = id === null;
    this.form.hidden = !mayAnswer;
    const key = `${id} ${change}`;
    if (id !== this.id) {
      this.replies = [];
      this.input.value = "";
    }
    this.id = id;
    if (id !== null && key !== this.shown) {
      this.shown = key;
      void this.ask(id);
    }
    this.draw();
  }

  private async ask(id: string): Promise<void> {
    try {
      const { replies } = await this.api.about(id);
      if (this.id === id) {
        this.replies = replies;
        this.draw();
      }
    } catch (error) {
      if (!(error instanceof Refused)) {
        throw error;
      }
      this.shown = ""; // asked again with the next change
    }
  }

  private draw(): void {
    const stored = new Set(this.replies.map(({ id }) => id));
    const own = [...this.model.ofKind("reply")].filter(([id, { parent }]) => parent === this.id && !stored.has(id));
    this.list.replaceChildren(
      ...this.replies.map((reply) => this.row(this.model.content(reply.id) ?? reply, `${reply.author}, ${timeText(reply.made_utc)}`)),
      ...own.map(([id, content]) => this.row(content, this.model.saved(id)?.author ?? "not saved yet")),
    );
  }

  private row(content: Content, who: string): HTMLElement {
    const item = document.createElement("li");
    item.hidden = content.deleted;
    item.append(box("who", who), box("said", content.note));
    return item;
  }

  private send(): void {
    const text = this.input.value.trim();
    if (text && this.id !== null) {
      this.input.value = "";
      this.answer(this.id, text);
    }
  }
}
