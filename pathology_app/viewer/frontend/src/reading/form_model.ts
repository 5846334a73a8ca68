// A reader's answers: as entered, as stored on the server, and those not yet stored. The summary of the answers that a
// signature locks is built from exactly the answers that are sent with it.

export type Answer = string | number | boolean;
export type Answers = Record<string, Answer>;

export interface Question {
  name: string;
  ask: string;
  kind: "choice" | "score" | "yes_no" | "text";
  choices: string[];
  low: number;
  high: number;
  required: boolean;
  max_length: number;
}

export interface FormData {
  /** Identifies the form, such as one start of one reading, uniquely in this browser. */
  place: string;
  questions: Question[];
  /** Answers stored on the server. */
  answers: Answers;
  /** Reason why the last answers were not stored or not signed. */
  wrong: string | null;
  /** Number of signature requests from this tab that were answered. */
  signs: number;
  /** Whether the server stores answers before they are signed; if not, they stay in this browser until then. */
  keeps: boolean;
  /** Label of the button that signs. */
  button: string;
  /** Signed answers of readers, to decide between; empty unless this person adjudicates. */
  others: Other[];
  draft: DraftPlace;
}

/** One signed reading of the slide. */
export interface Other {
  name: string;
  answers: Answers;
}

/** Owner of the browser's copy, and where it is found again. */
export interface DraftPlace {
  owner: string;
  title: string;
  /** Query of the page with the form. */
  link: string;
}

/** Answers to each question that all readers agree on; free text is never filled in. */
export function agreedAnswers(questions: Question[], others: Other[]): Answers {
  const agreed = questions.filter(({ name, kind }) => {
    const values = others.map(({ answers }) => answers[name]);
    return kind !== "text" && values.length > 1 && values[0] !== undefined && values.every((value) => value === values[0]);
  });
  return Object.fromEntries(agreed.map(({ name }) => [name, others[0]!.answers[name]!]));
}

/** Readers by their answer to a question, in the order in which the answers first occur. */
export function readersByAnswer({ name }: Question, others: Other[]): [Answer, string[]][] {
  const found = new Map<Answer, string[]>();
  for (const other of others) {
    const value = other.answers[name];
    if (value !== undefined) {
      found.set(value, [...(found.get(value) ?? []), other.name]);
    }
  }
  return [...found];
}

/** The answer that a key gives to a question: a digit chooses an option, y and n answer yes and no. */
export function answerOfKey({ kind, choices }: Question, key: string): Answer | null {
  if (kind === "yes_no") {
    return key === "y" ? true : key === "n" ? false : null;
  }
  const index = /^[1-9]$/.test(key) && kind === "choice" ? Number(key) - 1 : choices.length;
  return choices[index] ?? null;
}

export class FormModel {
  readonly values: Answers;
  /** Problems of fields with an invalid value, such as a number out of range. */
  private readonly wrong = new Map<string, string>();
  /** Questions still showing an answer that was filled in: it is not stored before its reader does something. */
  private readonly untouched: Set<string>;

  /** @param filled answers that the form begins with. */
  constructor(
    readonly questions: Question[],
    public kept: Answers,
    drafted: Answers,
    filled: Answers = {},
  ) {
    this.values = { ...filled, ...kept };
    this.untouched = new Set(Object.keys(filled).filter((name) => kept[name] === undefined));
    for (const question of questions) {
      const value = drafted[question.name];
      if (value !== undefined && problemOf(question, value) === null) {
        this.values[question.name] = value;
        this.untouched.delete(question.name);
      }
    }
  }

  /** Whether a question shows an answer that was filled in and not touched. */
  isFilled(name: string): boolean {
    return this.untouched.has(name);
  }

  /** @param value null if the field is empty. @returns the problem with the value, or null. */
  set(question: Question, value: Answer | null): string | null {
    const { name } = question;
    this.untouched.delete(name);
    const problem = value === null ? this.problemOfNone(question) : problemOf(question, value);
    if (problem === null) {
      this.wrong.delete(name);
    } else {
      this.wrong.set(name, problem);
    }
    if (value === null || problem !== null) {
      delete this.values[name];
    } else {
      this.values[name] = value;
    }
    return problem;
  }

  /** Take the answers now stored on the server. @returns untouched questions whose fields show an older answer. */
  take(kept: Answers): string[] {
    const before = this.kept;
    this.kept = kept;
    const isUntouched = (name: string): boolean => same(this.values[name], before[name]) || this.untouched.has(name);
    const changed = Object.keys(kept).filter((name) => kept[name] !== before[name] && isUntouched(name) && !this.wrong.has(name));
    for (const name of changed) {
      this.untouched.delete(name);
      this.values[name] = kept[name]!;
    }
    return changed;
  }

  /** Answers not yet stored on the server. */
  get unkept(): Answers {
    return Object.fromEntries(Object.entries(this.values).filter(([name, value]) => !same(value, this.kept[name]) && !this.untouched.has(name)));
  }

  get missing(): string[] {
    return this.questions.filter(({ name, required }) => required && !this.wrong.has(name) && same(this.values[name], undefined)).map(({ name }) => name);
  }

  get problems(): string[] {
    return [...this.wrong.values()];
  }

  get maySign(): boolean {
    return this.missing.length === 0 && this.wrong.size === 0;
  }

  /** The first question without an answer, after the given one if there is any there. */
  unanswered(after?: string): Question | undefined {
    const start = this.questions.findIndex(({ name }) => name === after) + 1;
    const isOpen = ({ name }: Question): boolean => same(this.values[name], undefined);
    return this.questions.slice(start).find(isOpen) ?? this.questions.slice(0, start).find((question) => question.name !== after && isOpen(question));
  }

  /** Answers that a signature locks, or the problems and missing answers. */
  get summary(): string {
    if (this.wrong.size > 0) {
      return `To correct: ${this.problems.join("; ")}.`;
    }
    if (this.missing.length > 0) {
      return `Still to answer: ${this.missing.join(", ")}.`;
    }
    return `Signing locks: ${this.questions.map(({ name }) => `${name}: ${answerText(this.values[name])}`).join("; ")}.`;
  }

  private problemOfNone({ name }: Question): string | null {
    return this.kept[name] === undefined ? null : `${name}: an answer can be replaced but not removed`;
  }
}

/** Equality that treats an empty text as no answer. */
function same(one: Answer | undefined, other: Answer | undefined): boolean {
  return (one ?? "") === (other ?? "");
}

function problemOf(question: Question, value: Answer): string | null {
  const { name, kind, low, high } = question;
  if (kind === "score") {
    const isInside = typeof value === "number" && value >= low && value <= high;
    return isInside ? null : `${name}: a number from ${low} to ${high}`;
  }
  const fits = { choice: question.choices.includes(String(value)), yes_no: typeof value === "boolean", text: typeof value === "string" };
  return fits[kind] ? null : `${name}: not a valid answer`;
}

export function answerText(value: Answer | undefined): string {
  if (value === undefined || value === "") {
    return "–";
  }
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}
