// The control of each question, and how it shows an answer.
import { box } from "../panel/elements";
import { type Answer, answerText, type Question } from "./form_model";

/** More choices than this are shown as a menu. */
const MAX_RADIO = 9;
/** Longest text that gets a single-line field. */
const LINE_LENGTH = 200;

export type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

export interface Field {
  element: HTMLElement;
  controls: Control[];
  show(value: Answer | undefined): void;
  /** Take the focus: a group of options as a whole, so that arrow keys still move the slide. */
  focus(options?: FocusOptions): void;
}

export interface FieldHost {
  /** @param isDone whether the answer is complete, as opposed to being typed. */
  changed(question: Question, value: Answer | null, isDone: boolean): void;
  left(question: Question): void;
}

export function fieldOf(question: Question, host: FieldHost): Field {
  if (question.kind === "yes_no") {
    return radios(question, [true, false], "beside", host);
  }
  if (question.kind === "choice") {
    return question.choices.length <= MAX_RADIO ? radios(question, question.choices, "below", host) : menu(question, host);
  }
  return typed(question, host);
}

function radios(question: Question, values: Answer[], place: string, host: FieldHost): Field {
  const inputs = values.map((value) => {
    const input = document.createElement("input");
    [input.type, input.name, input.value] = ["radio", question.name, String(value)];
    input.addEventListener("change", () => host.changed(question, value, true));
    return input;
  });
  const element = document.createElement("fieldset");
  element.tabIndex = -1;
  const legend = document.createElement("legend");
  legend.append(...promptOf(question));
  const labels = inputs.map((input, index) => {
    const label = document.createElement("label");
    label.className = "choice";
    const text = document.createElement("span");
    text.textContent = answerText(values[index]);
    label.append(input, keyOf(question, index), text);
    return label;
  });
  element.append(legend, box(place, ...labels));
  const show = (value: Answer | undefined): void => inputs.forEach((input, index) => (input.checked = values[index] === value));
  return { element, controls: inputs, show, focus: (options) => element.focus(options) };
}

/** The key that chooses an option. */
function keyOf({ kind }: Question, index: number): HTMLElement {
  const key = document.createElement("kbd");
  key.setAttribute("aria-hidden", "true");
  key.textContent = kind === "yes_no" ? (index === 0 ? "y" : "n") : String(index + 1);
  return key;
}

function menu(question: Question, host: FieldHost): Field {
  const select = document.createElement("select");
  select.append(new Option("choose …", ""), ...question.choices.map((choice) => new Option(choice, choice)));
  select.addEventListener("change", () => host.changed(question, select.value || null, true));
  return labelled(question, select, (value) => (select.value = value === undefined ? "" : String(value)));
}

function typed(question: Question, host: FieldHost): Field {
  const number = question.kind === "score" ? numberInput(question) : null;
  const input = number ?? textField(question.max_length);
  const read = (): Answer | null => (number ? numberOf(number) : input.value);
  input.addEventListener("input", () => host.changed(question, read(), false));
  input.addEventListener("change", () => host.left(question));
  return labelled(question, input, (value) => (input.value = value === undefined ? "" : String(value)));
}

function numberInput({ low, high }: Question): HTMLInputElement {
  const input = document.createElement("input");
  Object.assign(input, { type: "number", min: String(low), max: String(high), step: "any", placeholder: `${low} to ${high}` });
  return input;
}

function labelled(question: Question, control: Control, show: Field["show"]): Field {
  const label = document.createElement("label");
  const prompt = document.createElement("span");
  prompt.className = "ask";
  prompt.append(...promptOf(question));
  label.append(prompt, control);
  return { element: box("question", label), controls: [control], show, focus: (options) => control.focus(options) };
}

function textField(maxLength: number): HTMLInputElement | HTMLTextAreaElement {
  const field = document.createElement(maxLength > LINE_LENGTH ? "textarea" : "input");
  field.maxLength = maxLength;
  return field;
}

function promptOf({ ask, required }: Question): (Node | string)[] {
  const mark = document.createElement("span");
  [mark.className, mark.textContent] = ["required", " (required)"];
  return required ? [ask, mark] : [ask];
}

/** null if the field is empty; NaN if it does not hold a number. */
function numberOf(input: HTMLInputElement): number | null {
  return input.value === "" && !input.validity.badInput ? null : input.valueAsNumber;
}
