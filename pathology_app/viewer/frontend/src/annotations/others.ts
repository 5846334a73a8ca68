// The question before a drawing of somebody else is changed or deleted.
import { box, button } from "../panel/elements";
import type { Annotation } from "./types";

export class OthersDialog {
  readonly element = document.createElement("dialog");
  private readonly text = box("question");
  private readonly go = button("Continue", "Change it", () => this.answer(true));
  private continued: (() => void) | null = null;

  constructor() {
    this.element.className = "others";
    this.element.setAttribute("aria-label", "Somebody else's annotation");
    this.element.append(this.text, box("group", this.go, button("Cancel", "Leave it as it is", () => this.answer(false))));
    this.element.addEventListener("close", () => (this.continued = null));
  }

  /** @param label the step: "delete", "move", "class" … */
  ask(label: string, others: Annotation[], continued: () => void): void {
    const people = [...new Set(others.map(({ author }) => author))].join(", ");
    const what = others.length === 1 ? "This annotation was" : `${others.length} of these annotations were`;
    const isDeleting = label === "delete";
    this.text.textContent = `${what} drawn by ${people}, who will be told and can restore ${others.length === 1 ? "it" : "them"}. ${isDeleting ? "Delete" : "Change"} ${others.length === 1 ? "it" : "them"} anyway?`;
    this.go.textContent = isDeleting ? "Delete" : "Change";
    this.continued = continued;
    this.element.showModal();
  }

  private answer(isYes: boolean): void {
    const { continued } = this;
    this.element.close();
    if (isYes) {
      continued?.();
    }
  }
}
