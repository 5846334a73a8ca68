// Questions that end with a signature: those of a study, or the review of a slide. Every answer is stored in the browser as
// it is typed; in a study the server stores it a moment later. The signature is sent with the answers listed in its summary.
import { box } from "../panel/elements";
import type { Streamlit } from "../types";
import css from "./style.css";
import { type Answer, type Answers, answerText, Drafts, type FormData, FormModel, type Question } from "./form_model";

/** Delay after the last key before answers are sent to the server. */
const PAUSE_MS = 900;
/** More choices than this are shown as a menu. */
const MAX_RADIO = 9;
/** Longest text that gets a single-line field. */
const LINE_LENGTH = 200;
/** Interval for checking whether a signed reading has left the page. */
const LEFT_MS = 300;
/** Time after which a signature without an answer may be tried again. */
const ANSWER_MS = 20_000;

interface Field {
  element: HTMLElement;
  controls: (HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement)[];
  show(value: Answer | undefined): void;
}

class Questionnaire {
  private readonly root = box("form");
  private readonly summary = document.createElement("p");
  private readonly state = document.createElement("p");
  private readonly wrong = document.createElement("p");
  private readonly sign = document.createElement("button");
  private readonly drafts = new Drafts(storage());
  private fields = new Map<string, Field>();
  private model = new FormModel([], {}, {});
  private timer = 0;
  private left = 0;
  private isSigning = false;

  constructor(private component: Streamlit<FormData>) {
    const style = document.createElement("style");
    style.textContent = css;
    component.parentElement.append(style, this.root);
    [this.summary.className, this.state.className, this.wrong.className] = ["summary", "state", "wrong"];
    this.state.setAttribute("role", "status");
    this.wrong.setAttribute("role", "alert");
    [this.sign.type, this.sign.textContent] = ["button", component.data.button];
    this.sign.addEventListener("click", () => this.signNow());
    // Keys typed here are text, not commands of the slide viewer.
    this.root.addEventListener("keydown", (event) => event.stopPropagation());
    this.drafts.sweep();
    this.build();
  }

  update(component: Streamlit<FormData>): void {
    const before = this.component.data;
    this.component = component;
    this.isSigning &&= before.signs === component.data.signs;
    if (before.place !== component.data.place) {
      this.drafts.write(before.place, {}); // it is signed
      this.isSigning = false;
      this.build();
      return;
    }
    for (const name of this.model.take(component.data.answers)) {
      this.fields.get(name)?.show(this.model.values[name]);
    }
    this.keepDraft();
    this.show();
    if (component.data.wrong === null && Object.keys(this.model.unkept).length > 0) {
      this.keepSoon();
    }
  }

  private build(): void {
    const { place, questions, answers } = this.component.data;
    window.clearTimeout(this.timer);
    this.model = new FormModel(questions, answers, this.drafts.read(place));
    this.fields = new Map(questions.map((question) => [question.name, this.field(question)]));
    this.root.replaceChildren(...[...this.fields.values()].map(({ element }) => element), this.wrong, this.summary, this.state, this.sign);
    for (const [name, field] of this.fields) {
      field.show(this.model.values[name]);
    }
    this.keepDraft();
    this.show();
    if (Object.keys(this.model.unkept).length > 0) {
      this.keepNow(); // typed before a reload
    }
  }

  private changed(question: Question, value: Answer | null, isDone: boolean): void {
    const problem = this.model.set(question, value);
    this.fields.get(question.name)?.controls.forEach((control) => control.setAttribute("aria-invalid", String(problem !== null)));
    this.keepDraft();
    this.show();
    if (isDone) {
      this.keepNow();
    } else {
      this.keepSoon();
    }
  }

  /** A field left empty shows the stored answer again; a value out of range stays, to be corrected. */
  private leave(question: Question): void {
    const kept = this.model.kept[question.name];
    const field = this.fields.get(question.name);
    if (kept !== undefined && this.model.values[question.name] === undefined && field?.controls[0]?.value === "") {
      field.show(kept);
      this.changed(question, kept, true);
    } else {
      this.keepNow();
    }
  }

  private keepDraft(): void {
    this.drafts.write(this.component.data.place, this.model.unkept);
  }

  private keepSoon(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.keepNow(), PAUSE_MS);
  }

  private keepNow(): void {
    window.clearTimeout(this.timer);
    const answers = this.model.unkept;
    if (this.component.data.keeps && Object.keys(answers).length > 0 && !this.isSigning) {
      this.send("keep", answers);
    }
  }

  private signNow(): void {
    if (!this.model.maySign || this.isSigning) {
      return;
    }
    window.clearTimeout(this.timer);
    this.isSigning = true;
    this.show();
    this.send("sign", { ...this.model.values });
    this.forgetWhenLeft(this.component.data.place);
  }

  /** If no other reading follows, the form is simply removed; its draft is then deleted. */
  private forgetWhenLeft(place: string): void {
    window.clearInterval(this.left);
    const ends = Date.now() + ANSWER_MS;
    this.left = window.setInterval(() => {
      if (this.isSigning && Date.now() > ends) {
        this.isSigning = false;
        this.show();
      }
      if (!this.root.isConnected) {
        this.drafts.write(place, {});
      }
      if (!this.root.isConnected || !this.isSigning) {
        window.clearInterval(this.left);
      }
    }, LEFT_MS);
  }

  private send(trigger: "keep" | "sign", answers: Answers): void {
    this.component.setTriggerValue(trigger, { place: this.component.data.place, answers });
  }

  private show(): void {
    const isKept = !this.component.data.keeps || Object.keys(this.model.unkept).length === 0;
    this.summary.textContent = this.model.summary;
    this.wrong.textContent = this.component.data.wrong ?? "";
    this.state.textContent = this.isSigning ? "Signing …" : isKept ? "" : "Saving your answers …";
    this.sign.disabled = !this.model.maySign || this.isSigning;
    // An answer typed after the signature was sent would be lost.
    for (const { controls } of this.fields.values()) {
      controls.forEach((control) => (control.disabled = this.isSigning));
    }
  }

  private field(question: Question): Field {
    if (question.kind === "yes_no") {
      return this.radios(question, [true, false], "beside");
    }
    if (question.kind === "choice") {
      return question.choices.length <= MAX_RADIO ? this.radios(question, question.choices, "below") : this.menu(question);
    }
    return this.typed(question);
  }

  private radios(question: Question, values: Answer[], place: string): Field {
    const inputs = values.map((value) => {
      const input = document.createElement("input");
      [input.type, input.name, input.value] = ["radio", question.name, String(value)];
      input.addEventListener("change", () => this.changed(question, value, true));
      return input;
    });
    const element = document.createElement("fieldset");
    const legend = document.createElement("legend");
    legend.append(...promptOf(question));
    const labels = inputs.map((input, index) => {
      const label = document.createElement("label");
      label.className = "choice";
      label.append(input, answerText(values[index]));
      return label;
    });
    element.append(legend, box(place, ...labels));
    const show = (value: Answer | undefined): void => inputs.forEach((input, index) => (input.checked = values[index] === value));
    return { element, controls: inputs, show };
  }

  private menu(question: Question): Field {
    const select = document.createElement("select");
    select.append(new Option("choose …", ""), ...question.choices.map((choice) => new Option(choice, choice)));
    select.addEventListener("change", () => this.changed(question, select.value || null, true));
    return this.labelled(question, select, (value) => (select.value = value === undefined ? "" : String(value)));
  }

  private typed(question: Question): Field {
    const number = question.kind === "score" ? this.numberInput(question) : null;
    const input = number ?? textField(question.max_length);
    const read = (): Answer | null => (number ? numberOf(number) : input.value);
    input.addEventListener("input", () => this.changed(question, read(), false));
    input.addEventListener("change", () => this.leave(question));
    return this.labelled(question, input, (value) => (input.value = value === undefined ? "" : String(value)));
  }

  private numberInput({ low, high }: Question): HTMLInputElement {
    const input = document.createElement("input");
    Object.assign(input, { type: "number", min: String(low), max: String(high), step: "any", placeholder: `${low} to ${high}` });
    return input;
  }

  private labelled(question: Question, control: HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement, show: Field["show"]): Field {
    const element = document.createElement("label");
    element.className = "question";
    const prompt = document.createElement("span");
    prompt.className = "ask";
    prompt.append(...promptOf(question));
    element.append(prompt, control);
    return { element, controls: [control], show };
  }
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

function storage(): Storage | null {
  try {
    return window.localStorage;
  } catch {
    return null; // the browser forbids it
  }
}

const forms = new WeakMap<Streamlit<unknown>["parentElement"], Questionnaire>();

export function questionnaire(component: Streamlit<FormData>): void {
  const form = forms.get(component.parentElement);
  if (form) {
    form.update(component);
  } else {
    forms.set(component.parentElement, new Questionnaire(component));
  }
}
