// Questions that end with a signature: those of a study, or the review of a slide. Every answer is stored in the browser as
// it is typed; in a study the server stores it a moment later. The signature is sent with the answers listed in its summary.
import { keepHeight } from "../page/height";
import { box } from "../panel/elements";
import { announceSigning } from "../review/signing";
import type { Streamlit } from "../types";
import { type KeyHost, pressKey } from "./answer_keys";
import { asReaderButtons, type Chips, chipsOf } from "./chips";
import { Countdown, TAKE_BACK_S } from "./countdown";
import { storeOfBrowser } from "../page/stores";
import { Drafts } from "./drafts";
import { type Field, fieldOf } from "./fields";
import css from "./style.css";
import { agreedAnswers, type Answer, answerOfKey, type Answers, type FormData, FormModel, type Other, type Question } from "./form_model";

/** Delay after the last key before answers are sent to the server. */
const PAUSE_MS = 900;
/** Interval for checking whether a signed reading has left the page. */
const LEFT_MS = 300;
/** Time after which a signature without an answer may be tried again. */
const ANSWER_MS = 20_000;
/** Narrower windows have the questions on a sheet over the lower part of the page. */
const NARROW = "(max-width: 900px)";
const HINT = "Keys: 1–9, y, n answer · Enter: next question · Esc: to the slide, q: back · Ctrl + Enter: sign";

class Questionnaire implements KeyHost {
  readonly root = box("form");
  private readonly list = box("questions");
  private readonly summary = document.createElement("p");
  private readonly state = document.createElement("p");
  private readonly wrong = document.createElement("p");
  private readonly sheetButton = document.createElement("button");
  private readonly signButton = document.createElement("button");
  private readonly countdown = new Countdown({ over: () => this.sendSignature(), takenBack: () => this.takenBack() });
  private readonly drafts = new Drafts(storeOfBrowser());
  private readonly listeners = new AbortController();
  private fields = new Map<string, Field>();
  private chips = new Map<string, Chips>();
  private model = new FormModel([], {}, {});
  private timer = 0;
  private left = 0;
  private isSigning = false;
  private isInBrowser = true;
  private advice = "";
  /** Answers that were shown when the countdown began. */
  private shown: { place: string; answers: Answers } | null = null;

  constructor(private component: Streamlit<FormData>) {
    const style = document.createElement("style");
    style.textContent = css;
    component.parentElement.append(style, this.root, box("under"));
    [this.summary.className, this.state.className, this.wrong.className, this.signButton.className] = ["summary", "state", "wrong", "sign"];
    this.state.setAttribute("role", "status");
    this.wrong.setAttribute("role", "alert");
    [this.signButton.type, this.signButton.textContent] = ["button", component.data.button];
    this.signButton.addEventListener("click", () => this.sign());
    this.root.classList.toggle("reading", component.data.keeps);
    [this.sheetButton.type, this.sheetButton.className] = ["button", "sheet"];
    this.sheetButton.addEventListener("click", () => this.fold(!this.root.classList.contains("folded")));
    this.fold(true);
    const hint = document.createElement("p");
    [hint.className, hint.textContent, hint.hidden] = ["hint", HINT, !component.data.keeps];
    this.root.append(this.sheetButton, this.list, box("foot", this.wrong, this.summary, this.state, this.countdown.element, this.signButton, hint));
    // Keys typed here are text, not commands of the slide viewer.
    this.root.addEventListener("keydown", (event) => event.stopPropagation());
    const { signal } = this.listeners;
    window.addEventListener("keydown", (event) => this.key(event), { signal, capture: true });
    keepHeight(this.root, this.root, signal);
    this.drafts.sweep();
    this.build();
  }

  update(component: Streamlit<FormData>): void {
    const before = this.component.data;
    this.component = component;
    if (this.isSigning && before.signs !== component.data.signs) {
      this.isSigning = false;
      announceSigning(false);
    }
    if (before.place !== component.data.place) {
      this.drafts.write(before.place, {}, before.draft); // it is signed
      this.isSigning = false;
      this.countdown.end();
      announceSigning(false);
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

  isWholePage(): boolean {
    return this.component.data.keeps;
  }

  /** Begin the signature, which can be taken back for a few seconds. */
  sign(): void {
    if (this.isSigning || this.countdown.isRunning) {
      return;
    }
    if (!this.model.maySign) {
      this.advice = "Not signed.";
      this.show();
      this.enter();
      return;
    }
    window.clearTimeout(this.timer);
    this.shown = { place: this.component.data.place, answers: { ...this.model.values } };
    this.countdown.begin();
    this.fold(false); // what is signed is read once more
    this.show();
  }

  toSlide(): void {
    this.fold(true);
  }

  /** In a narrow window, leave of the sheet only a bar with Sign, or raise it. */
  private fold(isFolded: boolean): void {
    this.root.classList.toggle("folded", isFolded);
    this.sheetButton.setAttribute("aria-expanded", String(!isFolded));
  }

  enter(): void {
    const first = this.model.unanswered();
    this.focusOn(first ?? this.model.questions[0]);
  }

  next(): void {
    this.goOn(this.focused());
  }

  current(): Question | undefined {
    return this.focused() ?? this.model.unanswered();
  }

  focus(question: Question): void {
    this.focusOn(question);
  }

  answer(question: Question, key: string): boolean {
    const value = this.countdown.isRunning || this.isSigning ? null : answerOfKey(question, key);
    if (value === null) {
      return false;
    }
    this.choose(question, value);
    this.goOn(question);
    return true;
  }

  private key(event: KeyboardEvent): void {
    if (!this.root.isConnected) {
      this.listeners.abort();
    } else {
      pressKey(event, this);
    }
  }

  private focused(): Question | undefined {
    const active = (this.root.getRootNode() as ShadowRoot | Document).activeElement;
    return this.model.questions.find(({ name }) => active !== null && (this.fields.get(name)?.element.contains(active) ?? false));
  }

  /** Go to the next question without an answer; with all answered, to the signature. */
  private goOn(question: Question | undefined): void {
    const next = this.model.unanswered(question?.name);
    if (next && next !== question) {
      this.focusOn(next);
    } else {
      this.signButton.focus();
    }
  }

  private focusOn(question: Question | undefined): void {
    const field = question && this.fields.get(question.name);
    this.fold(false);
    field?.focus();
    field?.element.scrollIntoView({ block: "nearest" });
  }

  private build(): void {
    const { place, questions, answers, others, draft, keeps } = this.component.data;
    window.clearTimeout(this.timer);
    this.advice = "";
    this.model = new FormModel(questions, answers, this.drafts.read(place, draft.owner), agreedAnswers(questions, others));
    const host = { changed: this.changed.bind(this), left: this.leave.bind(this) };
    this.fields = new Map(questions.map((question) => [question.name, fieldOf(question, host)]));
    this.chips = new Map(others.length === 0 ? [] : questions.map((question) => [question.name, chipsOf(question, others, (value) => this.choose(question, value))]));
    const asReader = others.length === 0 ? [] : [asReaderButtons(others, (other) => this.decideAs(other))];
    for (const [name, { element }] of this.chips) {
      this.fields.get(name)!.element.append(element);
    }
    this.list.replaceChildren(...asReader, ...[...this.fields.values()].map(({ element }) => element));
    for (const [name, field] of this.fields) {
      field.show(this.model.values[name]);
    }
    this.keepDraft();
    this.show();
    if (Object.keys(this.model.unkept).length > 0) {
      this.keepNow(); // typed before a reload
    }
    // A touch screen would open its keyboard for a field to type in.
    if (keeps && !window.matchMedia(NARROW).matches && (this.model.unanswered()?.kind === "choice" || !window.matchMedia("(pointer: coarse)").matches)) {
      const first = this.model.unanswered() ?? questions[0];
      // A raised sheet would lie over the slide. preventScroll: the slide must stay in sight.
      this.fields.get(first?.name ?? "")?.focus({ preventScroll: true });
    }
  }

  /** Answer a question other than by its own control. */
  private choose(question: Question, value: Answer): void {
    this.fields.get(question.name)?.show(value);
    this.changed(question, value, true);
  }

  private decideAs({ answers }: Other): void {
    for (const question of this.model.questions) {
      const value = answers[question.name];
      if (value !== undefined && question.kind !== "text") {
        this.choose(question, value);
      }
    }
  }

  private changed(question: Question, value: Answer | null, isDone: boolean): void {
    const problem = this.model.set(question, value);
    this.advice = "";
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
    const { place, draft } = this.component.data;
    this.isInBrowser = this.drafts.write(place, this.model.unkept, draft);
  }

  private keepSoon(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.keepNow(), PAUSE_MS);
  }

  private keepNow(): void {
    window.clearTimeout(this.timer);
    const answers = this.model.unkept;
    if (this.component.data.keeps && Object.keys(answers).length > 0 && !this.isSigning && !this.countdown.isRunning) {
      this.send("keep", answers);
    }
  }

  private takenBack(): void {
    this.shown = null;
    this.advice = "Taken back: nothing is signed.";
    this.show();
    this.signButton.focus();
    this.keepNow();
  }

  private sendSignature(): void {
    if (!this.shown || !this.root.isConnected) {
      return;
    }
    const { place, answers } = this.shown;
    this.isSigning = true;
    this.show();
    this.component.setTriggerValue("sign", { place, answers });
    this.forgetWhenLeft(place);
  }

  /** If no other reading follows, the form is simply removed; its draft is then deleted. */
  private forgetWhenLeft(place: string): void {
    window.clearInterval(this.left);
    const ends = Date.now() + ANSWER_MS;
    const { draft } = this.component.data;
    this.left = window.setInterval(() => {
      if (this.isSigning && Date.now() > ends) {
        this.isSigning = false;
        announceSigning(false);
        this.show();
      }
      if (!this.root.isConnected) {
        this.drafts.write(place, {}, draft);
        announceSigning(false);
      }
      if (!this.root.isConnected || !this.isSigning) {
        window.clearInterval(this.left);
      }
    }, LEFT_MS);
  }

  private send(trigger: "keep", answers: Answers): void {
    this.component.setTriggerValue(trigger, { place: this.component.data.place, answers });
  }

  private show(): void {
    this.summary.textContent = this.model.summary;
    const answered = this.model.questions.filter(({ name }) => this.model.values[name] !== undefined).length;
    this.sheetButton.textContent = `Questions: ${answered} of ${this.model.questions.length} answered`;
    // A long summary scrolls, and the keyboard must reach it.
    this.summary.tabIndex = this.summary.scrollHeight > this.summary.clientHeight + 1 ? 0 : -1;
    this.wrong.textContent = this.component.data.wrong ?? "";
    this.state.textContent = this.stateText();
    const isLocked = this.isSigning || this.countdown.isRunning;
    this.signButton.disabled = !this.model.maySign || isLocked;
    this.signButton.hidden = this.countdown.isRunning;
    // An answer typed after the signature was sent would be lost.
    for (const { controls } of this.fields.values()) {
      controls.forEach((control) => (control.disabled = isLocked));
    }
    this.list.querySelectorAll<HTMLButtonElement>("button.chip").forEach((button) => (button.disabled = isLocked));
    for (const [name, chips] of this.chips) {
      chips.show(this.model.values[name], this.model.isFilled(name));
    }
  }

  private stateText(): string {
    if (this.isSigning) {
      return "Signing …";
    }
    if (this.countdown.isRunning) {
      return `Signs in ${TAKE_BACK_S} seconds. Esc takes it back.`;
    }
    const isUnkept = Object.keys(this.model.unkept).length > 0;
    if (isUnkept && !this.isInBrowser && !this.component.data.keeps) {
      return "This browser cannot keep your answers: sign before you leave the page.";
    }
    return isUnkept && this.component.data.keeps ? "Saving your answers …" : this.advice;
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
