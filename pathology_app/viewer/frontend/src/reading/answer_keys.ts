// Keys of a reading's questions. With the focus in the questions, digits, y and n answer; every other key is the slide's.
// With the focus elsewhere, q leads to the questions. Ctrl + Enter signs from anywhere on the page.
import type { Question } from "./form_model";

/** As the list of keys shows them. */
export const READING_KEYS: [string, string][] = [
  ["q", "to the questions; Esc leads back to the slide"],
  ["1 to 9, y, n", "in the questions: choose an option, yes or no; Enter leads to the next question"],
  ["Ctrl + Enter", "sign, with three seconds to take it back by Esc"],
];

const TYPED_INTO = "input:not([type=range], [type=checkbox], [type=radio]), textarea, select, [contenteditable], [role=combobox]";

export interface KeyHost {
  root: HTMLElement;
  /** Whether the keys work with the focus anywhere on the page. */
  isWholePage(): boolean;
  sign(): void;
  /** Go to the first question without an answer. */
  enter(): void;
  /** Go to the next question without an answer. */
  next(): void;
  /** The question with the focus, else the first without an answer. */
  current(): Question | undefined;
  /** @returns whether the key is an answer to the question. */
  answer(question: Question, key: string): boolean;
  focus(question: Question): void;
  /** Leave the questions for the slide. */
  toSlide(): void;
}

/** Handle a key before the slide viewer does. */
export function pressKey(event: KeyboardEvent, host: KeyHost): void {
  const path = event.composedPath();
  const isInside = path.includes(host.root);
  if (!host.root.isConnected || !(isInside || host.isWholePage())) {
    return;
  }
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    take(event);
    host.sign();
  } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !event.isComposing) {
    const target = path[0] instanceof HTMLElement ? path[0] : null;
    const isTyped = target?.matches(TYPED_INTO) ?? false;
    if (isInside) {
      pressInside(event, host, target, isTyped);
    } else if (event.key === "q" && !isTyped) {
      take(event);
      host.enter();
    }
  }
}

function pressInside(event: KeyboardEvent, host: KeyHost, target: HTMLElement | null, isTyped: boolean): void {
  if (event.key === "Escape" && host.isWholePage()) {
    take(event);
    target?.blur();
    host.toSlide();
  } else if (event.key === "Enter" && !(target?.matches("button, textarea") ?? false)) {
    take(event);
    host.next();
  } else if (!isTyped && /^[0-9yn]$/.test(event.key)) {
    answer(event, host);
  }
}

function answer(event: KeyboardEvent, host: KeyHost): void {
  const question = host.current();
  if (question?.kind === "score" && event.key >= "0" && event.key <= "9") {
    event.stopPropagation();
    host.focus(question); // the browser types the digit into the field
    return;
  }
  take(event);
  if (question && !host.answer(question, event.key)) {
    host.focus(question);
  }
}

function take(event: KeyboardEvent): void {
  event.preventDefault();
  event.stopPropagation();
}
