// What the user has to decide: drawings that the server refused, and own drawings that others changed or deleted.
import { box, button } from "../../panel/elements";
import type { Entry } from "../storage/outbox";
import type { Annotation, Content } from "../types";
import { timeText } from "./time";

export interface ConcernActions {
  show(id: string): void;
  discard(id: string): void;
  restore(annotation: Annotation): void;
  noted(ids: string[]): void;
}

export class Concerns {
  readonly element = box("concerns");
  private shown = "";

  constructor(private readonly actions: ConcernActions) {
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "To decide");
  }

  update(refused: Entry[], changed: Annotation[]): void {
    const text = JSON.stringify([refused, changed]);
    if (text !== this.shown) {
      this.shown = text;
      this.element.replaceChildren(...refused.map((entry) => this.refused(entry)), ...changed.map((annotation) => this.changed(annotation)));
    }
  }

  private refused({ draft, refused }: Entry): HTMLElement {
    const text = `${nameOf(draft)} was not saved: ${plain(refused!)}`;
    const buttons = [
      button("Show", "Go to this drawing; it is saved again once it is changed", () => this.actions.show(draft.id)),
      button("Discard", "Give up this change", () => this.actions.discard(draft.id)),
    ];
    return box("concern", box("text", text), box("group", ...buttons));
  }

  private changed(annotation: Annotation): HTMLElement {
    const did = annotation.deleted ? "deleted" : "changed";
    const text = `${annotation.changed_by} ${did} your ${nameOf(annotation).toLowerCase()}, ${timeText(annotation.changed_utc)}.`;
    const buttons = [
      button("Restore mine", "Put your own last version back", () => this.actions.restore(annotation)),
      button("Accept", "Leave it as it is now", () => this.actions.noted([annotation.id])),
    ];
    return box("concern", box("text", text), box("group", ...buttons));
  }
}

/** "Polygon, tumour", without an id that nobody can read. */
export function nameOf({ kind, class: name }: Pick<Content, "kind" | "class">): string {
  const words: Partial<Record<Content["kind"], string>> = { mark: "Counted object", reply: "Answer", freehand: "Freehand area" };
  const word = words[kind] ?? kind[0]!.toUpperCase() + kind.slice(1);
  return name === null ? word : `${word}, ${name}`;
}

/** A reason without the annotation's id. */
function plain(reason: string): string {
  const text = reason.replace(/^annotation '[^']*'(: )?/, "");
  return text[0] ? text[0].toUpperCase() + text.slice(1) : reason;
}
