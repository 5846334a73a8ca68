// Changes that the server has not taken yet. They lie in the browser's own storage, so that a reload, a crash or a day
// without network loses none. Each tab writes under its own name; what a tab left that is gone, another one takes over.
import type { Draft } from "./types";

export interface Entry {
  draft: Draft;
  /** Counts up with each change of the entry: an answer is only about the one that was sent. */
  stamp: number;
  /** Who drew it, as the log names them; nobody else sends it. */
  me: string;
  /** Why the server will not have it; it is kept, and sent again once it was changed. */
  refused?: string;
}

/** Of `localStorage`, what is used. */
export type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

export class Outbox {
  private readonly entries = new Map<string, Entry>();
  private stamp = 0;
  /** The browser has no room, or forbids it: what is here lasts only as long as the page. */
  isKept = true;

  /**
   * @param place names project and slide.
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

  /** What may be sent now. */
  ready(): Entry[] {
    return this.all().filter(({ me, refused }) => me === this.me && refused === undefined);
  }

  put(draft: Draft, refused?: string): Entry {
    const entry: Entry = { draft, stamp: ++this.stamp, me: this.me, ...(refused === undefined ? {} : { refused }) };
    this.write(entry);
    return entry;
  }

  /** The server has another revision than the draft was made from, and the draft is of that one now. */
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

  /** Take over what tabs have left that are gone. Returns what was taken. */
  adopt(alive: ReadonlySet<string>): Entry[] {
    const found = this.left(alive);
    for (const [key, entry] of found) {
      if (!this.entries.has(entry.draft.id)) {
        this.write({ ...entry, stamp: ++this.stamp });
      }
      this.store?.removeItem(key);
    }
    return found.map(([, entry]) => this.entries.get(entry.draft.id)!);
  }

  private left(alive: ReadonlySet<string>): [string, Entry][] {
    const found: [string, Entry][] = [];
    try {
      for (let index = 0; index < (this.store?.length ?? 0); index++) {
        const key = this.store!.key(index)!;
        const tab = key.startsWith(`${this.place}/`) ? key.slice(this.place.length + 1).split("/")[0]! : this.tab;
        const entry = tab !== this.tab && !alive.has(tab) ? parsed(this.store!.getItem(key)) : null;
        if (entry) {
          found.push([key, entry]);
        }
      }
    } catch {
      this.isKept = false;
    }
    return found;
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
