// Answers not yet stored on the server, in the browser's storage: a copy for each form, under its owner's name.
import type { Answers, DraftPlace } from "./form_model";

interface Draft extends DraftPlace {
  at: number;
  values: Answers;
}

/** The part of `localStorage` that is used. */
export type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

const PREFIX = "gemslide.reading ";
/** More forms than this are never open; the oldest copies beyond are deleted. */
const MAX_DRAFTS = 500;

/**
 * Answers not yet stored on the server, kept in the browser's storage until they are signed: they survive a reload, a
 * crash and a sign-out. Only their owner is shown them.
 */
export class Drafts {
  constructor(
    private readonly store: Store | null,
    private readonly now: () => number = Date.now,
  ) {}

  read(place: string, owner: string): Answers {
    const draft = this.parsed(PREFIX + place);
    return draft?.owner === owner ? draft.values : {};
  }

  /** @returns whether the browser has kept them. */
  write(place: string, values: Answers, whose: DraftPlace): boolean {
    try {
      if (Object.keys(values).length === 0) {
        this.store?.removeItem(PREFIX + place);
      } else {
        this.store?.setItem(PREFIX + place, JSON.stringify({ ...whose, at: this.now(), values }));
      }
      return this.store !== null;
    } catch {
      return false; // Storage is full or forbidden.
    }
  }

  /** Copies of one person, the newest first. */
  of(owner: string): DraftPlace[] {
    return this.all()
      .filter((draft) => draft.owner === owner)
      .map(({ title, link }) => ({ owner, title, link }));
  }

  /** Delete what is damaged, and the oldest copies if there are too many. */
  sweep(): void {
    const kept = new Set(this.all().slice(0, MAX_DRAFTS).map(({ key }) => key));
    this.keys().forEach((key) => kept.has(key) || this.store?.removeItem(key));
  }

  private all(): (Draft & { key: string })[] {
    const drafts = this.keys().map((key) => ({ key, draft: this.parsed(key) }));
    return drafts.flatMap(({ key, draft }) => (draft ? [{ ...draft, key }] : [])).sort((one, other) => other.at - one.at);
  }

  private keys(): string[] {
    const keys = Array.from({ length: this.store?.length ?? 0 }, (_, index) => this.store?.key(index) ?? "");
    return keys.filter((key) => key.startsWith(PREFIX));
  }

  private parsed(key: string): Draft | null {
    try {
      const draft = JSON.parse(this.store?.getItem(key) ?? "null") as Partial<Record<keyof Draft, unknown>> | null;
      const texts = [draft?.owner, draft?.title, draft?.link];
      const isOurs = typeof draft?.at === "number" && typeof draft.values === "object" && draft.values !== null;
      return isOurs && texts.every((text) => typeof text === "string") ? (draft as unknown as Draft) : null;
    } catch {
      return null;
    }
  }
}
