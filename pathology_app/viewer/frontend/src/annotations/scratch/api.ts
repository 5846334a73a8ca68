// Measurements of people who may not save any: kept in this browser only, and never sent. They work where annotations of
// others may not be shown, and for people who may only look.
import { areaOf, type Point } from "../../view/geometry";
import { pathsOf } from "../drawing/shapes";
import type { Annotation, Changes, Counts, Draft, Geometry, RegionAreas, Saved } from "../types";
import { type AnnotationApi, Refused, type TablePage } from "../storage/api";
import type { Store } from "../storage/outbox";
import { insideShare } from "../drawing/clipping";
import { tallyOf } from "../counting/tally";

const ME = "you";
const PALETTE = ["0072b2", "d55e00", "009e73", "cc79a7", "e69f00", "56b4e9", "f0e442", "000000"];

export class ScratchApi implements AnnotationApi {
  private readonly stored: Map<string, Annotation>;
  private change = 0;
  readonly exportLink = "";
  readonly countsLink = "";

  /** @param place key in the browser's storage; names the reading, so that nobody gets what another one measured. */
  constructor(
    private readonly store: Store | null,
    private readonly place: string,
    private readonly slide: { width_px0: number; height_px0: number; mpp0: number },
  ) {
    this.stored = new Map(read(store, place).map((annotation) => [annotation.id, annotation]));
    this.change = Math.max(0, ...[...this.stored.values()].map(({ change }) => change));
  }

  readonly tile = (): string => "";

  async changes(since: number | null): Promise<Changes> {
    const live = [...this.stored.values()].filter(({ deleted, change }) => (since === null ? !deleted : change > since));
    const names = [...new Set([...this.stored.values()].flatMap(({ class: name }) => (name === null ? [] : [name])))];
    return {
      change: this.change,
      classes: names.map((name, index) => [name, 0, PALETTE[index % PALETTE.length]!]),
      without_class: 0,
      palette: PALETTE,
      project: this.place,
      me: ME,
      may_annotate: true,
      only_own: false,
      may_export: false,
      annotations: live,
    };
  }

  async save(drafts: Draft[]): Promise<Saved> {
    this.change++;
    const utc = new Date().toISOString();
    const saved = drafts.map((draft): Annotation => {
      const before = this.stored.get(draft.id);
      return { ...draft, revision: (before?.revision ?? 0) + 1, change: this.change, author: ME, made_utc: before?.made_utc ?? utc, changed_by: ME, changed_utc: utc };
    });
    saved.forEach((annotation) => this.stored.set(annotation.id, annotation));
    const deleted = new Set(saved.filter((annotation) => annotation.deleted).map(({ id }) => id));
    for (const child of this.stored.values()) {
      if (child.parent !== null && deleted.has(child.parent) && !child.deleted) {
        this.stored.set(child.id, { ...child, deleted: true, change: this.change });
      }
    }
    try {
      this.store?.setItem(this.place, JSON.stringify([...this.stored.values()]));
    } catch {
      // The storage is full or forbidden: the measurements last as long as the page.
    }
    return { change: this.change, saved, conflicts: [], me: ME };
  }

  async areas(areas: Geometry[]): Promise<RegionAreas[]> {
    return areas.map((area) => this.sizes(area));
  }

  async counts(): Promise<Counts> {
    const live = [...this.stored.values()].filter(({ deleted }) => !deleted);
    const counts = live.filter(({ kind }) => kind === "count").map((count, index) => {
      const marks = live.filter(({ parent, kind }) => parent === count.id && kind === "mark");
      return tallyOf(`Count ${index + 1}`, count, marks, this.sizes(count.geometry));
    });
    return { change: this.change, counts };
  }

  async some(ids: string[]): Promise<Annotation[]> {
    return ids.flatMap((id) => this.stored.get(id) ?? []);
  }

  async at(): Promise<Annotation[]> {
    return []; // all of them are known to the page
  }

  async found(): Promise<Annotation[]> {
    return [];
  }

  async about(): Promise<{ replies: Annotation[]; own: null }> {
    return { replies: [], own: null };
  }

  async changedByOthers(): Promise<Annotation[]> {
    return [];
  }

  async noted(): Promise<unknown> {
    return {};
  }

  async table(): Promise<TablePage> {
    return { rows: [], total: 0, measured: 0, totals: [] };
  }

  tableLink(): string {
    return "";
  }

  join(): Promise<never> {
    return notHere();
  }

  split(): Promise<never> {
    return notHere();
  }

  erase(): Promise<never> {
    return notHere();
  }

  wand(): Promise<never> {
    return notHere();
  }

  import(): Promise<never> {
    return notHere();
  }

  private sizes(area: Geometry): RegionAreas {
    const { width_px0, height_px0, mpp0 } = this.slide;
    const points: Point[] = pathsOf(area)[0]?.points ?? [];
    const area_mm2 = (areaOf(points) * mpp0 ** 2) / 1e6;
    return { area_mm2, scanned_mm2: area_mm2 * insideShare(points, width_px0, height_px0), tissue_mm2: null };
  }
}

function notHere(): Promise<never> {
  return Promise.reject(new Refused(403, "forbidden", "Not available here: you may only measure."));
}

function read(store: Store | null, place: string): Annotation[] {
  try {
    const stored = JSON.parse(store?.getItem(place) ?? "[]") as unknown;
    return Array.isArray(stored) ? stored.filter(isAnnotation) : [];
  } catch {
    return [];
  }
}

function isAnnotation(value: unknown): value is Annotation {
  const annotation = value as Partial<Annotation> | null;
  return typeof annotation?.id === "string" && typeof annotation.geometry === "object" && typeof annotation.change === "number";
}
