// A user's judgements of hotspots: seen, accepted or rejected; stored on the server, and undone one by one.
import type { Hotspot } from "../types";
import { messageOf, Outbox } from "./outbox";

export type State = "seen" | "accepted" | "rejected";

type Row = [class_name: string, x_px0: number, y_px0: number, state: State];

/** "Seen" marks are sent in batches after a pause; judgements are sent at once. */
const PAUSE_MS = 2_000;
const MAX_ROWS = 500;

export function keyOf({ class_name, x_px0, y_px0 }: Pick<Hotspot, "class_name" | "x_px0" | "y_px0">): string {
  return `${x_px0} ${y_px0} ${class_name}`;
}

export class Judgements {
  private readonly states = new Map<string, State>();
  private readonly waiting = new Map<string, Row>();
  private readonly past: [Hotspot, State | null][] = [];
  private readonly outbox: Outbox;
  private timer = 0;

  /** @param changed called whenever the state of a hotspot changes. */
  constructor(
    readonly url: string,
    private readonly changed: () => void,
    private readonly note: (text: string) => void,
  ) {
    this.outbox = new Outbox(url, (problem) => problem && note(problem));
    void this.load();
  }

  stateOf(hotspot: Hotspot): State | null {
    return this.states.get(keyOf(hotspot)) ?? null;
  }

  get canUndo(): boolean {
    return this.past.length > 0;
  }

  see(hotspot: Hotspot): void {
    if (!this.states.has(keyOf(hotspot))) {
      this.set(hotspot, "seen", PAUSE_MS);
    }
  }

  /** Accept or reject; repeating the same judgement undoes it. */
  judge(hotspot: Hotspot, state: "accepted" | "rejected"): void {
    const before = this.stateOf(hotspot);
    this.past.push([hotspot, before]);
    this.set(hotspot, before === state ? "seen" : state, 0);
  }

  /** Undo the last judgement. @returns its hotspot. */
  undo(): Hotspot | null {
    const last = this.past.pop();
    if (!last) {
      return null;
    }
    this.set(last[0], last[1] ?? "seen", 0);
    return last[0];
  }

  /** Send what is waiting, when the page is left. */
  flushNow(): void {
    if (this.waiting.size && this.outbox.sendLast({ judged: [...this.waiting.values()].slice(0, MAX_ROWS) })) {
      this.waiting.clear();
    }
  }

  private set(hotspot: Hotspot, state: State, pause_ms: number): void {
    this.states.set(keyOf(hotspot), state);
    this.waiting.set(keyOf(hotspot), [hotspot.class_name, hotspot.x_px0, hotspot.y_px0, state]);
    this.schedule(pause_ms);
    this.changed();
  }

  private schedule(pause_ms: number): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.flush(), pause_ms);
  }

  private async flush(): Promise<void> {
    const rows = [...this.waiting.entries()].slice(0, MAX_ROWS);
    if (!rows.length) {
      return;
    }
    const isDelivered = await this.outbox.send({ judged: rows.map(([, row]) => row) });
    for (const [key, row] of rows) {
      if (isDelivered && this.waiting.get(key) === row) {
        this.waiting.delete(key);
      }
    }
    if (this.waiting.size) {
      this.schedule(PAUSE_MS);
    }
  }

  private async load(): Promise<void> {
    const response = await fetch(this.url).catch(() => null);
    if (!response?.ok) {
      this.note(response ? await messageOf(response) : "Earlier judgements of hotspots could not be loaded.");
      return;
    }
    const { judged } = (await response.json()) as { judged: Row[] };
    for (const [class_name, x_px0, y_px0, state] of judged) {
      const key = keyOf({ class_name, x_px0, y_px0 });
      if (!this.waiting.has(key)) {
        this.states.set(key, state);
      }
    }
    this.changed();
  }
}
