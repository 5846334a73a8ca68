// Keeps this page and the server in sync: sends the outbox, polls for changes by others, and reports the state. Nothing
// leaves the outbox before the server has it.
import { type AnnotationApi, Refused } from "./api";
import type { Model } from "./model";
import { type Entry, Outbox, type Store } from "./outbox";
import type { Annotation, Changes, Saved, Summary } from "../types";

const POLL_MS = 4000;
const LONGEST_WAIT_MS = 30_000;
const MOST_AT_ONCE = 200;
const MOST_BYTES = 900_000;
/** Time that other tabs have to report that they are open. */
const ANSWER_MS = 300;

export interface SyncEvents {
  /** Counts, colours or the saved state have changed. */
  changed(): void;
  /** Show a message to the user. */
  say(text: string): void;
  /** Too much has changed to be listed: the tiles must be requested again. */
  manyChanged(): void;
  /** Another user changed the same annotation: theirs keeps the id, and `newId` is that of the local version. */
  kept(id: string, newId: string): void;
  /** The server has saved changes of this page. */
  saved(): void;
  /** The server's first answer, which names project and user. */
  opened(summary: Summary): void;
}

export class Sync {
  summary: Summary | null = null;
  outbox: Outbox | null = null;
  /** Why sending or polling currently fails; "" if it works. */
  private readonly trouble = { sending: "", asking: "" };
  private readonly tab = crypto.getRandomValues(new Uint32Array(2)).join("-");
  private readonly alive = new Set<string>();
  private channel: BroadcastChannel | null;
  private isSending = false;
  /** Whether the last request to save had no answer: the server may have carried it out, or not. */
  private isUnanswered = false;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private poller: ReturnType<typeof setTimeout> | undefined;
  private isOver = false;

  constructor(
    private readonly api: AnnotationApi,
    private readonly model: Model,
    private readonly slideId: string,
    private readonly store: Store | null,
    private readonly events: SyncEvents,
  ) {
    this.channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(`gemslide/annotations/${slideId}`) : null;
    this.channel?.addEventListener("message", ({ data }: MessageEvent<{ from: string; asks?: boolean }>) => this.heard(data));
  }

  async start(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.end());
    window.addEventListener("online", () => this.hurry(), { signal });
    document.addEventListener("visibilitychange", () => document.hidden || this.hurry(), { signal });
    await this.poll();
  }

  get isSaved(): boolean {
    return (this.outbox?.all().length ?? 0) === 0;
  }

  /** Whether the server may have saved changes of this page that it has not confirmed. */
  get awaitsAnswer(): boolean {
    return this.isSending || this.isUnanswered;
  }

  /** Summary of the saved state. */
  get state(): string {
    const entries = this.outbox?.all() ?? [];
    const refused = entries.filter((entry) => entry.refused !== undefined);
    const others = entries.filter((entry) => entry.me !== this.outbox?.me);
    const waiting = entries.length - refused.length - others.length;
    const where = this.outbox?.isKept === false ? "in this page only: do not close it" : "in this browser";
    const trouble = this.trouble.sending || this.trouble.asking;
    return [
      trouble,
      waiting ? `${waiting} not saved yet, kept ${where}.` : "",
      refused.length ? `${refused.length} refused, kept ${where}.` : "",
      others.length ? `${others.length} by ${others[0]!.me} kept here until they sign in.` : "",
      !entries.length && !trouble && this.summary ? "All saved." : "",
    ]
      .filter(Boolean)
      .join(" ");
  }

  /** Send the outbox now. */
  kick(): void {
    this.events.changed();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.send(), this.failures ? this.wait_ms() : 0);
  }

  /** Poll for changes by others now. */
  hurry(): void {
    this.failures = 0;
    this.kick();
    clearTimeout(this.poller);
    void this.poll();
  }

  private end(): void {
    this.isOver = true;
    clearTimeout(this.timer);
    clearTimeout(this.poller);
    this.channel?.close();
    this.channel = null; // requests still running must not post to it
  }

  private heard({ from, asks }: { from: string; asks?: boolean }): void {
    this.alive.add(from);
    if (asks) {
      this.channel?.postMessage({ from: this.tab });
    } else if (this.outbox) {
      clearTimeout(this.poller);
      void this.poll();
    }
  }

  private async poll(): Promise<void> {
    try {
      this.take(await this.api.changes(this.summary?.change ?? null));
      if (this.trouble.asking) {
        [this.trouble.asking, this.failures] = ["", 0];
        this.kick();
      }
    } catch (error) {
      this.trouble.asking = reasonOf(error);
    }
    if (!this.isOver) {
      clearTimeout(this.poller);
      this.poller = setTimeout(() => void this.poll(), document.hidden ? LONGEST_WAIT_MS : POLL_MS);
    }
    this.events.changed();
  }

  private take(changes: Changes): void {
    const isFirst = this.summary === null;
    const hasChanged = this.summary?.change !== changes.change;
    this.summary = changes;
    if (isFirst) {
      this.open(changes);
      this.model.learn(changes.annotations ?? [], true);
    } else if (hasChanged && changes.annotations === null) {
      this.events.manyChanged();
    } else if (changes.annotations?.length) {
      this.model.learn(changes.annotations, true);
    }
    if (this.outbox && this.outbox.me !== changes.me) {
      this.outbox.me = changes.me; // another user has signed in
      this.kick();
    }
  }

  /** Handle the first answer, which identifies the project and user: open the outbox and adopt entries of closed tabs. */
  private open(summary: Summary): void {
    const { project, me } = summary;
    this.events.opened(summary);
    this.outbox = new Outbox(this.store, `gemslide/annotations/${project}/${this.slideId}`, this.tab, me);
    this.channel?.postMessage({ from: this.tab, asks: true });
    setTimeout(() => {
      const taken = this.isOver ? [] : this.outbox!.adopt(this.alive);
      this.model.adopted(taken);
      if (taken.length) {
        this.kick();
      }
    }, ANSWER_MS);
    this.events.manyChanged();
  }

  private async send(): Promise<void> {
    const entries = this.outbox ? someOf(this.outbox.ready()) : [];
    if (this.isSending || this.isOver || !entries.length) {
      return;
    }
    this.isSending = true;
    try {
      await this.deliver(entries);
      [this.failures, this.trouble.sending, this.isUnanswered] = [0, "", false];
      this.events.saved();
      this.channel?.postMessage({ from: this.tab });
    } catch (error) {
      this.failures++;
      this.trouble.sending = reasonOf(error);
      this.isUnanswered = !(error instanceof Refused && error.status >= 400 && error.status < 500);
    } finally {
      this.isSending = false;
    }
    this.events.changed();
    if (this.outbox!.ready().length) {
      this.kick();
    }
  }

  private async deliver(entries: Entry[]): Promise<void> {
    try {
      this.delivered(entries, await this.api.save(entries.map(({ draft }) => draft)));
    } catch (error) {
      if (!(error instanceof Refused) || ![400, 413].includes(error.status)) {
        throw error;
      }
      if (entries.length > 1) {
        for (const entry of entries) {
          await this.deliver([entry]); // one of them is refused: send them singly, so that the others are saved
        }
      } else if (this.outbox!.get(entries[0]!.draft.id)?.stamp === entries[0]!.stamp) {
        this.outbox!.put(entries[0]!.draft, error.message);
      }
    }
  }

  private delivered(entries: Entry[], { saved, conflicts }: Saved): void {
    const outbox = this.outbox!;
    this.model.learn([...saved, ...conflicts], true);
    const theirs = new Map(conflicts.map((annotation) => [annotation.id, annotation]));
    const ours = new Map(saved.map((annotation) => [annotation.id, annotation]));
    for (const { draft, stamp } of entries) {
      const present = outbox.get(draft.id);
      const conflict = theirs.get(draft.id);
      if (conflict && present) {
        this.keepBoth(present, conflict);
      } else if (present?.stamp === stamp) {
        outbox.remove(draft.id);
      } else if (present) {
        outbox.rebase(draft.id, ours.get(draft.id)?.revision ?? 0); // changed again in the meantime
      }
    }
  }

  /** Keep the other user's version, and add the local version under a new id. A local deletion is dropped. */
  private keepBoth({ draft }: Entry, theirs: Annotation): void {
    this.outbox!.remove(draft.id);
    if (draft.deleted) {
      this.events.say(`Not deleted: ${theirs.changed_by} has changed this annotation in the meantime.`);
      return;
    }
    const id = newId();
    this.model.put(id, draft);
    this.events.kept(draft.id, id);
    const change = theirs.deleted ? "deleted" : "changed";
    this.events.say(`${theirs.changed_by} has ${change} this annotation in the meantime: theirs and yours are both kept.`);
  }

  private wait_ms(): number {
    return Math.min(LONGEST_WAIT_MS, 1000 * 2 ** (this.failures - 1));
  }
}

/** The first entries, as many as fit in one request. */
function someOf(entries: Entry[]): Entry[] {
  let bytes = 0;
  return entries.filter(({ draft }, index) => {
    bytes += JSON.stringify(draft).length * 1.1;
    return index === 0 || (index < MOST_AT_ONCE && bytes < MOST_BYTES);
  });
}

/** A random UUID; `crypto.randomUUID` is not available on pages without https. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 15) | 64;
  bytes[8] = (bytes[8]! & 63) | 128;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Refused)) {
    throw error;
  }
  const reasons: Record<number, string> = {
    0: "The server is not responding.",
    401: "You are signed out: sign in again in another tab.",
  };
  return reasons[error.status] ?? error.message;
}
