// Counting of objects by class in circles or areas. Each object is a mark of its own, saved at once; two people can count
// in the same area.
import type { Point, Transform } from "../../view/geometry";
import { insideShare, onSlide } from "../drawing/clipping";
import { contains, pathsOf } from "../drawing/shapes";
import type { Editor } from "../editor";
import { areasText, percent, perMm2Text, sizesOf } from "../drawing/sizes";
import { paintMeasured } from "../drawing/measured";
import { type AnnotationApi, Refused } from "../storage/api";
import type { Model } from "../storage/model";
import { newId } from "../storage/sync";
import { type Counts, type CountTally, drawing, type Geometry, type RegionAreas } from "../types";
import { CIRCLE_SIZES_MM2, circleAround } from "./circle";
import { withChanges } from "./tally";

export type CountShape = (typeof CIRCLE_SIZES_MM2)[number] | "area";

const SHAPES: readonly CountShape[] = [...CIRCLE_SIZES_MM2, "area"];
const PREVIEW_COLOUR = "#00a5c9";
const REFRESH_MS = 250;
const MARK = "count";

export interface CounterHost {
  middle(): Point;
  mpp0: number;
  width_px0: number;
  height_px0: number;
  say(text: string): void;
  changed(): void;
  /** Whether the server may have saved something that this page has no answer about yet. */
  awaitsAnswer(): boolean;
}

export class Counter {
  /** Id of the count that clicks add to. */
  activeId: string | null = null;
  /** Shape of the next count. */
  shape: CountShape = 1;
  private counts: Counts = { change: 0, counts: [] };
  private readonly regions = new Map<string, RegionAreas>();
  private at: Point | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isAsking = false;
  private isOver = false;

  constructor(
    private readonly api: AnnotationApi,
    private readonly model: Model,
    private readonly editor: Editor,
    private readonly host: CounterHost,
    private readonly className: () => string,
  ) {}

  end(): void {
    this.isOver = true;
    clearTimeout(this.timer);
  }

  /** The active count; null if there is none, or if it has been deleted. */
  get active(): CountTally | null {
    const content = this.activeId === null ? null : this.model.content(this.activeId);
    if (this.activeId === null || !content || content.deleted) {
      return null;
    }
    return this.all.find(({ id }) => id === this.activeId) ?? this.fresh(this.activeId);
  }

  /** All counts of the slide, with what has not been saved yet. */
  get all(): CountTally[] {
    const tallies = this.counts.counts.filter(({ id }) => id !== null && this.model.content(id)?.deleted !== true);
    return tallies.map((tally) => withChanges(tally, this.changesOf(tally.id!)));
  }

  /** All counts together, as the server last said; null unless there are several. */
  get total(): CountTally | null {
    return this.counts.counts.find(({ id }) => id === null) ?? null;
  }

  /** Ask the server for the numbers, soon. */
  refresh(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.ask(), REFRESH_MS);
  }

  activate(id: string | null): void {
    this.activeId = id;
    this.host.changed();
  }

  /** Begin another count of this shape. */
  begin(shape: CountShape): void {
    [this.shape, this.activeId] = [shape, null];
    this.host.changed();
  }

  /** The key of the tool, pressed again: another count, or the next shape for one that is not placed yet. */
  again(): void {
    this.begin(this.activeId === null ? SHAPES[(SHAPES.indexOf(this.shape) + 1) % SHAPES.length]! : this.shape);
  }

  hint(): string {
    const tally = this.active;
    if (tally) {
      return `${summaryOf(tally)}. ${this.className()}: click to count. Keys 1 to 9 choose the class, Backspace takes the last one back, c begins another count.`;
    }
    if (this.shape === "area") {
      return "Count in an area: drag around it, or click its corners. c: circle of 1 mm².";
    }
    const share = this.shareOnSlide();
    const warning = share > 0.999 ? "" : ` Only ${percent(share)} of it would lie on the scan.`;
    return `Count: click to place a circle of ${this.shape} mm².${warning} c: ${this.shape === 1 ? "2 mm²" : "an area of your own"}.`;
  }

  hover(at: Point | null): void {
    this.at = at;
  }

  /** A click: place the circle, or count an object. */
  press(at: Point): void {
    if (this.active) {
      this.mark(at);
    } else if (this.shape !== "area") {
      this.place(circleAround(at, this.shape, this.host.mpp0));
    }
  }

  /** Make a count of a region. */
  place(region: Geometry): void {
    const ring = pathsOf(region)[0]?.points ?? [];
    if (insideShare(ring, this.host.width_px0, this.host.height_px0) === 0) {
      this.host.say("This area lies outside the scan. Place it on the slide.");
      return;
    }
    const id = newId();
    this.activeId = id;
    this.editor.apply("place count", [[id, drawing("count", region)]]);
    void this.measure(id, region);
  }

  /** Take the last object back. False if the last step was another one. */
  undo(): boolean {
    if (this.editor.history.undoes !== MARK) {
      return false;
    }
    this.editor.undo();
    return true;
  }

  draw(context: CanvasRenderingContext2D, transform: Transform): void {
    if (this.active || this.shape === "area") {
      return;
    }
    const geometry = circleAround(this.at ?? this.host.middle(), this.shape, this.host.mpp0);
    const share = this.shareOnSlide();
    const text = share > 0.999 ? `${this.shape} mm²` : `${this.shape} mm², ${percent(share)} on the scan`;
    paintMeasured(context, { kind: "count", geometry }, transform, PREVIEW_COLOUR, false, text);
  }

  /** Label of a count on the slide. */
  labelOf(id: string): string {
    const tally = this.all.find((one) => one.id === id) ?? this.fresh(id);
    return [tally.name, ...tally.classes.map(({ class_name, number }) => `${class_name} ${number.toLocaleString("en")}`)].join(" · ");
  }

  private mark(at: Point): void {
    const count = this.model.content(this.activeId!)!;
    if (!contains(count.geometry, at, 0)) {
      this.host.say("Outside the counted area: not counted. Press c to begin another count.");
      return;
    }
    const geometry: Geometry = { type: "Point", coordinates: [at.x, at.y] };
    if (!onSlide(geometry, this.host.width_px0, this.host.height_px0)) {
      this.host.say("Outside the scan: not counted.");
      return;
    }
    this.host.say("");
    this.editor.apply(MARK, [[newId(), drawing("mark", geometry, { class: this.className(), parent: this.activeId })]]);
  }

  private shareOnSlide(): number {
    const geometry = circleAround(this.at ?? this.host.middle(), this.shape === 2 ? 2 : 1, this.host.mpp0);
    return insideShare(pathsOf(geometry)[0]!.points, this.host.width_px0, this.host.height_px0);
  }

  /** A count that the server has not told of yet. */
  private fresh(id: string): CountTally {
    const areas = this.regions.get(id) ?? this.onSlide(id);
    const empty = { id, name: "New count", ...areas, classes: [], outside: 0, author: "", changed_utc: "" };
    return withChanges(empty, this.changesOf(id));
  }

  /** Sizes of a count as far as they are known without the server: what lies on the slide counts as scanned. */
  private onSlide(id: string): RegionAreas {
    const { mpp0, width_px0, height_px0 } = this.host;
    const region = this.model.content(id)?.geometry;
    const area_mm2 = region ? sizesOf(region, mpp0).area_um2 / 1e6 : 0;
    const ring = region ? (pathsOf(region)[0]?.points ?? []) : [];
    return { area_mm2, scanned_mm2: area_mm2 * insideShare(ring, width_px0, height_px0), tissue_mm2: null };
  }

  /** Objects added to a count since the server's numbers, by class. */
  private changesOf(id: string): Map<string, number> {
    const region = this.model.content(id)?.geometry;
    const changes = new Map<string, number>();
    for (const { geometry, class: name, number } of this.model.marksSince(id, this.counts.change)) {
      const isIn = region && geometry.type === "Point" && contains(region, { x: geometry.coordinates[0], y: geometry.coordinates[1] }, 0);
      if (isIn && name !== null) {
        changes.set(name, (changes.get(name) ?? 0) + number);
      }
    }
    return changes;
  }

  private async measure(id: string, region: Geometry): Promise<void> {
    try {
      const [areas] = await this.api.areas([region]);
      this.regions.set(id, areas!);
      this.host.changed();
    } catch (error) {
      if (!(error instanceof Refused)) {
        throw error;
      }
      // Without an answer, sizes are shown once the count has been saved.
    }
  }

  private async ask(): Promise<void> {
    if (this.isAsking || this.isOver) {
      return;
    }
    this.isAsking = true;
    try {
      const counts = await this.api.counts();
      // They may include an object that is not known to be saved, which would be counted twice; they are asked for again
      // once it is.
      if (counts.change >= this.counts.change && !this.host.awaitsAnswer()) {
        this.counts = counts;
      }
    } catch (error) {
      if (!(error instanceof Refused)) {
        throw error;
      }
      // Without an answer, the last numbers stay, with what was counted here since.
    } finally {
      this.isAsking = false;
    }
    this.host.changed();
  }
}

/** "Count 1, 1 mm², all scanned: 3 counted · positive 2 (66.7 %, 95 % CI 20.8 to 93.9) · 3 per mm² scanned". */
export function summaryOf(tally: CountTally): string {
  const total = tally.classes.reduce((sum, { number }) => sum + number, 0);
  const density = tally.scanned_mm2 > 0 ? `${perMm2Text(total / tally.scanned_mm2)} per mm² scanned` : "";
  const areas = tally.area_mm2 > 0 ? `, ${areasText(tally)}` : "";
  return [`${tally.name}${areas}: ${total.toLocaleString("en")} counted`, density].filter(Boolean).join(", ");
}
