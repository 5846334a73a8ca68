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
}

/** The part of `localStorage` that is used. */
export type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

const PREFIX = "gemslide.reading ";
const OLD_MS = 14 * 24 * 3600 * 1000;

/** Answers not yet stored on the server, kept in the browser's storage to survive a reload or a crash. */
export class Drafts {
  constructor(
    private readonly store: Store | null,
    private readonly now: () => number = Date.now,
  ) {}

  read(place: string): Answers {
    const draft = this.parsed(PREFIX + place);
    return draft ? draft.values : {};
  }

  write(place: string, values: Answers): void {
    try {
      if (Object.keys(values).length === 0) {
        this.store?.removeItem(PREFIX + place);
      } else {
        this.store?.setItem(PREFIX + place, JSON.stringify({ at: this.now(), values }));
      }
    } catch {
      // Storage is full or forbidden; the server receives the answer a moment later.
    }
  }

  /** Remove old drafts. */
  sweep(): void {
    const keys = Array.from({ length: this.store?.length ?? 0 }, (_, index) => this.store?.key(index) ?? "");
    for (const key of keys.filter((name) => name.startsWith(PREFIX))) {
      const draft = this.parsed(key);
      if (!draft || this.now() - draft.at > OLD_MS) {
        this.store?.removeItem(key);
      }
    }
  }

  private parsed(key: string): { at: number; values: Answers } | null {
    try {
      const draft = JSON.parse(this.store?.getItem(key) ?? "null") as { at?: unknown; values?: unknown } | null;
      const isOurs = typeof draft?.at === "number" && typeof draft.values === "object" && draft.values !== null;
      return isOurs ? (draft as { at: number; values: Answers }) : null;
    } catch {
      return null;
    }
  }
}

export class FormModel {
  readonly values: Answers;
  /** Problems of fields with an invalid value, such as a number out of range. */
  private readonly wrong = new Map<string, string>();

  constructor(
    readonly questions: Question[],
    public kept: Answers,
    drafted: Answers,
  ) {
    this.values = { ...kept };
    for (const question of questions) {
      const value = drafted[question.name];
      if (value !== undefined && problemOf(question, value) === null) {
        this.values[question.name] = value;
      }
    }
  }

  /** @param value null if the field is empty. @returns the problem with the value, or null. */
  set(question: Question, value: Answer | null): string | null {
    const { name } = question;
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
    const changed = Object.keys(kept).filter((name) => kept[name] !== before[name] && same(this.values[name], before[name]) && !this.wrong.has(name));
    for (const name of changed) {
      this.values[name] = kept[name]!;
    }
    return changed;
  }

  /** Answers not yet stored on the server. */
  get unkept(): Answers {
    return Object.fromEntries(Object.entries(this.values).filter(([name, value]) => !same(value, this.kept[name])));
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
