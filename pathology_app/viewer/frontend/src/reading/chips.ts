// The readers' answers to a question, for the person who decides between them: one chip for each answer.
import { box } from "../panel/elements";
import { type Answer, answerText, type Other, type Question, readersByAnswer } from "./form_model";

export interface Chips {
  element: HTMLElement;
  show(value: Answer | undefined, isFilled: boolean): void;
}

export function chipsOf(question: Question, others: Other[], choose: (value: Answer) => void): Chips {
  const note = document.createElement("span");
  note.className = "agreed";
  const chips = readersByAnswer(question, others).map(([value, names]) => {
    const button = document.createElement("button");
    [button.type, button.className] = ["button", "chip"];
    button.textContent = `${names.join(", ")}: ${answerText(value)}`;
    button.addEventListener("click", () => choose(value));
    return { value, button };
  });
  const element = box("chips", ...chips.map(({ button }) => button), note);
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", `The readers' answers: ${question.name}`);
  const show = (value: Answer | undefined, isFilled: boolean): void => {
    chips.forEach(({ button, value: own }) => button.setAttribute("aria-pressed", String(own === value)));
    note.textContent = isFilled ? "agreed, filled in" : "";
  };
  return { element, show };
}

/** A button for each reader that takes all of their answers except free text. */
export function asReaderButtons(others: Other[], take: (other: Other) => void): HTMLElement {
  const buttons = others.map((other) => {
    const button = document.createElement("button");
    [button.type, button.className, button.textContent] = ["button", "chip", `as ${other.name}`];
    button.addEventListener("click", () => take(other));
    return button;
  });
  const element = box("chips", "Decide ", ...buttons);
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", "Take a reader's answers");
  return element;
}
