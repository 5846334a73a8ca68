// Changes not yet saved on the server, kept in the browser's storage so that none is lost in a reload, a crash or a day
// without network. Every tab writes under its own name; changes of a closed tab are adopted by another one.
import type { Draft } from "../types";

export interface Entry {
  draft: Draft;
  /** Increases with every change of the entry, so that an answer is matched to the version that was sent. */
  stamp: number;
  /** Author, as named in the log; only sent while this user is signed in. */
  me: string;
  /** Reason of a refusal by the server; the entry is kept, and sent again after it is changed. */
  refused?: string;
}

/** The part of `localStorage` that is used. */
export type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

export class Outbox {
  private readonly entries = new Map<string, Entry>();
  private stamp = 0;
  /** Whether the browser stores entries; false if its storage is full or forbidden: they then last only as long as the page. */
  isKept = true;

  /**
   * @param place identifies project and slide.
   * @param tab this tab's own name.
   */
  constructor(
    private readonly store: Store | null,
    private readonly place: string,
    private readonly tab: string,
    public me: string,
  ) {}

  get(id: string): Entry | undefined {
    return this.entries.get(id);
  }

  all(): Entry[] {
    return [...this.entries.values()];
  }

  /** Entries that may be sent now. */
  ready(): Entry[] {
    return this.all().filter(({ me, refused }) => me === this.me && refused === undefined);
  }

  put(draft: Draft, refused?: string): Entry {
    const entry: Entry = { draft, stamp: ++this.stamp, me: this.me, ...(refused === undefined ? {} : { refused }) };
    this.write(entry);
    return entry;
  }

  /** Base a draft on the server's new revision. */
  rebase(id: string, revision: number): void {
    const entry = this.entries.get(id);
    if (entry) {
      this.write({ ...entry, draft: { ...entry.draft, revision } });
    }
  }

  remove(id: string): void {
    this.entries.delete(id);
    try {
      this.store?.removeItem(this.key(id));
    } catch {
      this.isKept = false;
    }
  }

  /** Take over the entries of closed tabs. @returns the entries taken over. */
  adopt(alive: ReadonlySet<string>): Entry[] {
    const entries = this.left(alive);
    for (const [key, entry] of entries) {
      if (!this.entries.has(entry.draft.id)) {
        this.write({ ...entry, stamp: ++this.stamp });
      }
      this.store?.removeItem(key);
    }
    return entries.map(([, entry]) => this.entries.get(entry.draft.id)!);
  }

  private left(alive: ReadonlySet<string>): [string, Entry][] {
    const entries: [string, Entry][] = [];
    try {
      for (let index = 0; index < (this.store?.length ?? 0); index++) {
        const key = this.store!.key(index)!;
        const tab = key.startsWith(`${this.place}/`) ? key.slice(this.place.length + 1).split("/")[0]! : this.tab;
        const entry = tab !== this.tab && !alive.has(tab) ? parsed(this.store!.getItem(key)) : null;
        if (entry) {
          entries.push([key, entry]);
        }
      }
    } catch {
      this.isKept = false;
    }
    return entries;
  }

  private write(entry: Entry): void {
    this.entries.set(entry.draft.id, entry);
    try {
      this.store?.setItem(this.key(entry.draft.id), JSON.stringify(entry));
      this.isKept = this.store !== null;
    } catch {
      this.isKept = false;
    }
  }

  private key(id: string): string {
    return `${this.place}/${this.tab}/${id}`;
  }
}

function parsed(text: string | null): Entry | null {
  try {
    const entry = JSON.parse(text ?? "null") as Entry | null;
    return typeof entry?.draft?.id === "string" && typeof entry.draft.geometry === "object" ? entry : null;
  } catch {
    return null;
  }
}
