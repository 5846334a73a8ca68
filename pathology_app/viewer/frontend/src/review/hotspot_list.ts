// List of hotspots by decreasing score, with thumbnails and states: seen or not, accepted or rejected.
// Only the rows on the screen exist, so that a list of thousands scrolls as smoothly as one of ten.
import { box, button, checkbox, toggle } from "../panel/elements";
import type { Point } from "../view/geometry";
import type { Hotspot } from "../types";
import { Judgements, type State } from "./judgements";

export interface HotspotHost {
  /** Go to a hotspot, by its index in the list. */
  show(index: number): void;
  redraw(): void;
  note(text: string): void;
  /** The section's title has changed. */
  titled(title: string): void;
}

const ROW_PX = 66;
const SPARE_ROWS = 4;
const WORDS: Record<State, string> = { seen: "seen", accepted: "accepted", rejected: "rejected" };

export class HotspotList {
  readonly element = box("hotspot-list");
  private readonly summary = box("hint");
  private readonly scroller = box("rows");
  private readonly filler = box("filler");
  private readonly undoButton = button("Undo", "Undo the last judgement", () => this.undo());
  private readonly tools: HTMLDivElement;
  private readonly rows = new Map<number, HTMLElement>();
  private judgements: Judgements | null = null;
  private hotspots: Hotspot[] = [];
  private listed: number[] = [];
  private note = "";
  private onlyUnseen = false;
  private readonly stop = new AbortController();
  private current: number | null = null;

  constructor(private readonly host: HotspotHost) {
    const filter = checkbox("Only unseen", "List only hotspots not yet seen", false, (isOn) => {
      this.onlyUnseen = isOn;
      this.relist();
    });
    this.tools = box("row", filter, this.undoButton);
    this.scroller.setAttribute("role", "list");
    this.scroller.setAttribute("aria-label", "Hotspots, highest score first");
    this.scroller.append(this.filler);
    this.scroller.addEventListener("scroll", () => this.drawRows());
    this.scroller.addEventListener("keydown", (event) => this.move(event));
    new ResizeObserver(() => this.drawRows()).observe(this.scroller);
    this.element.append(this.summary, this.tools, this.scroller);
    window.addEventListener("pagehide", () => this.judgements?.flushNow(), { signal: this.stop.signal });
  }

  /** @param url stores judgements; null if none are stored. @param note shown above the list. */
  replace(hotspots: Hotspot[], url: string | null, note: string): void {
    const isSame = this.hotspots.length === hotspots.length && JSON.stringify(this.hotspots) === JSON.stringify(hotspots);
    this.note = note;
    if (!isSame) {
      this.hotspots = hotspots;
      this.current = null;
      this.scroller.scrollTop = 0;
    }
    if (this.judgements?.url !== url) {
      this.judgements?.flushNow();
      this.judgements = url === null ? null : new Judgements(url, () => this.changed(), (text) => this.host.note(text));
    }
    this.relist();
  }

  destroy(): void {
    this.stop.abort();
    this.judgements?.flushNow();
  }

  /** Mark the hotspot visited last. */
  setCurrent(index: number | null): void {
    if (index !== this.current) {
      this.current = index;
      const place = index === null ? -1 : this.listed.indexOf(index);
      if (place >= 0) {
        this.reveal(place);
      }
      this.drawRows(true);
    }
  }

  accept(): void {
    this.judgeCurrent("accepted");
  }

  reject(): void {
    this.judgeCurrent("rejected");
  }

  stateOf(index: number): State | null {
    const hotspot = this.hotspots[index];
    return (hotspot && this.judgements?.stateOf(hotspot)) ?? null;
  }

  /** Mark the hotspots in an area as seen. */
  saw(isInside: (at: Point) => boolean): void {
    for (const hotspot of this.hotspots) {
      if (isInside({ x: hotspot.x_px0, y: hotspot.y_px0 })) {
        this.judgements?.see(hotspot);
      }
    }
  }

  private judgeCurrent(state: "accepted" | "rejected"): void {
    const hotspot = this.current === null ? undefined : this.hotspots[this.current];
    if (hotspot) {
      this.judgements?.judge(hotspot, state);
    }
  }

  private undo(): void {
    const hotspot = this.judgements?.undo();
    const index = hotspot ? this.hotspots.indexOf(hotspot) : -1;
    if (index >= 0) {
      this.host.show(index);
    }
  }

  private changed(): void {
    // A row leaves the filtered list only when the filter is set again: it must not disappear under the pointer.
    this.drawRows(true);
    this.summarise();
    this.host.redraw();
  }

  private relist(): void {
    this.listed = this.hotspots.flatMap((_, index) => (this.onlyUnseen && this.stateOf(index) !== null ? [] : [index]));
    this.filler.style.height = `${this.listed.length * ROW_PX}px`;
    this.scroller.hidden = this.listed.length === 0;
    this.tools.hidden = this.hotspots.length === 0;
    this.summarise();
    this.drawRows(true);
  }

  private summarise(): void {
    const states = this.hotspots.map((_, index) => this.stateOf(index));
    const judged = states.filter((state) => state === "accepted" || state === "rejected").length;
    const seen = states.filter((state) => state !== null).length;
    const counts = this.hotspots.length ? `${judged} of ${this.hotspots.length} judged, ${seen} seen.` : "";
    const none = this.onlyUnseen && this.hotspots.length && !this.listed.length ? "All have been seen." : "";
    this.summary.textContent = [counts, none, this.note].filter((text) => text).join(" ");
    this.undoButton.disabled = !this.judgements?.canUndo;
    this.host.titled(this.hotspots.length ? `Hotspots (${this.hotspots.length})` : "Hotspots");
  }

  private drawRows(isFresh = false): void {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(this.listed.length, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / ROW_PX) + SPARE_ROWS);
    const focused = this.focusedPlace();
    for (const [place, row] of this.rows) {
      if (isFresh || place < first || place >= last) {
        row.remove();
        this.rows.delete(place);
      }
    }
    for (let place = first; place < last; place++) {
      if (!this.rows.has(place)) {
        const row = this.row(place);
        this.rows.set(place, row);
        this.filler.append(row);
      }
    }
    if (focused && isFresh) {
      this.rows.get(focused.place)?.querySelectorAll("button")[focused.button]?.focus({ preventScroll: true });
    }
  }

  /** Row and button that have the focus, so that it can be restored after a redraw. */
  private focusedPlace(): { place: number; button: number } | null {
    const active = (this.element.getRootNode() as Document | ShadowRoot).activeElement;
    for (const [place, row] of this.rows) {
      const index = active ? Array.from(row.querySelectorAll("button")).indexOf(active as HTMLButtonElement) : -1;
      if (index >= 0) {
        return { place, button: index };
      }
    }
    return null;
  }

  private row(place: number): HTMLElement {
    const index = this.listed[place]!;
    const hotspot = this.hotspots[index]!;
    const state = this.stateOf(index);
    const row = box(`spot ${state ?? "unseen"}`);
    row.setAttribute("role", "listitem");
    row.setAttribute("aria-setsize", String(this.listed.length));
    row.setAttribute("aria-posinset", String(place + 1));
    row.classList.toggle("current", index === this.current);
    row.style.top = `${place * ROW_PX}px`;
    row.append(this.goButton(index, hotspot, state));
    if (this.judgements) {
      row.append(this.judgeButton(index, "✓", "Accept", "accepted"), this.judgeButton(index, "✗", "Reject", "rejected"));
    }
    return row;
  }

  private goButton(index: number, hotspot: Hotspot, state: State | null): HTMLButtonElement {
    const go = document.createElement("button");
    go.type = "button";
    go.className = "go";
    go.setAttribute("aria-current", String(index === this.current));
    const crop = document.createElement("img");
    Object.assign(crop, { src: hotspot.crop_url, alt: "", loading: "lazy", width: 56, height: 56 });
    const area = `${Number(hotspot.area_mm2.toPrecision(2))} mm²`;
    const words = box(
      "words",
      box("what", `${index + 1}. ${hotspot.label}`),
      box("hint", `${area} · ${state ? WORDS[state] : "not seen"}`),
      box("hint", hotspot.place),
    );
    go.append(crop, words);
    go.addEventListener("click", () => this.host.show(index));
    return go;
  }

  private judgeButton(index: number, sign: string, action: string, state: "accepted" | "rejected"): HTMLButtonElement {
    const element = toggle(sign, `${action} hotspot ${index + 1}`, () => this.judgements?.judge(this.hotspots[index]!, state));
    element.classList.add(state);
    element.setAttribute("aria-pressed", String(this.stateOf(index) === state));
    return element;
  }

  /** Up and Down move between rows; Home and End go to the first and last row. */
  private move(event: KeyboardEvent): void {
    const focused = this.focusedPlace();
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (!focused || step === undefined) {
      return;
    }
    event.preventDefault();
    const place = Math.min(this.listed.length - 1, Math.max(0, focused.place + step));
    this.reveal(place);
    this.drawRows();
    this.rows.get(place)?.querySelectorAll("button")[focused.button]?.focus({ preventScroll: true });
  }

  private reveal(place: number): void {
    const { scrollTop, clientHeight } = this.scroller;
    if (place * ROW_PX < scrollTop) {
      this.scroller.scrollTop = place * ROW_PX;
    } else if ((place + 1) * ROW_PX > scrollTop + clientHeight) {
      this.scroller.scrollTop = (place + 1) * ROW_PX - clientHeight;
    }
  }
}
