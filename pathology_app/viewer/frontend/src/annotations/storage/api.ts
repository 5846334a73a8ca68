// Requests to the server.
import { type Annotation, type Changes, contentOf, type Counts, type Draft, type Geometry, type RegionAreas, type Saved } from "../types";

/** The server refused a request; the message gives the reason. Status 0: no answer. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export interface Imported {
  saved: number;
  unchanged: number;
  beside: number;
  dropped: number;
}

/** Answers under an annotation, and the signed-in user's own last version of it. */
export interface About {
  replies: Annotation[];
  own: Annotation | null;
}

export interface TableRow {
  id: string;
  kind: string;
  class: string | null;
  note: string;
  area_mm2: number | null;
  length_um: number | null;
  inside: number | null;
  replies: number;
  author: string;
  changed_utc: string;
  box_px0: [number, number, number, number];
}

export interface TablePage {
  rows: TableRow[];
  total: number;
  /** Number of rows that were sorted; of more, only the latest. */
  measured: number;
  /** Class, number, area in mm². */
  totals: [string | null, number, number][];
}

/** A point on the slide from which the wand fills similar tissue (pathology_app/annotating/wand.py). */
export interface WandRequest {
  x_px0: number;
  y_px0: number;
  /** µm per pixel at which to look: that of the screen. */
  mpp: number;
  /** 0 to 1: difference in stain that still counts as similar. */
  tolerance: number;
}

/** Requests that annotations need; `Api` sends them to the server, `ScratchApi` answers them from the browser's storage. */
export type AnnotationApi = Omit<Api, "root" | "ask">;

export class Api {
  private readonly root: string;

  constructor(slideId: string) {
    this.root = `/annotations/${encodeURIComponent(slideId)}`;
  }

  readonly tile = (place: string, version: string): string => `${this.root}/tiles/${place}?v=${version}`;

  get exportLink(): string {
    return `${this.root}/qupath.geojson`;
  }

  changes(since: number | null): Promise<Changes> {
    return this.ask(`/changes${since === null ? "" : `?since=${since}`}`);
  }

  async at(x: number, y: number, within: number): Promise<Annotation[]> {
    return (await this.ask<{ annotations: Annotation[] }>(`/at/${x.toFixed(2)}_${y.toFixed(2)}?within=${Math.min(9e5, within).toFixed(2)}`)).annotations;
  }

  async found(words: string): Promise<Annotation[]> {
    return (await this.ask<{ annotations: Annotation[] }>(`/found?words=${encodeURIComponent(words)}`)).annotations;
  }

  save(drafts: Draft[]): Promise<Saved> {
    const changes = drafts.map((draft) => ({ id: draft.id, revision: draft.revision, ...contentOf(draft) }));
    return this.ask("", JSON.stringify({ changes }));
  }

  async join(areas: Geometry[]): Promise<Geometry[]> {
    return (await this.ask<{ areas: Geometry[] }>("/join", JSON.stringify({ areas }))).areas;
  }

  async split(area: Geometry, line: Geometry): Promise<Geometry[]> {
    return (await this.ask<{ areas: Geometry[] }>("/split", JSON.stringify({ areas: [area], line }))).areas;
  }

  async erase(area: Geometry, part: Geometry): Promise<Geometry[]> {
    return (await this.ask<{ areas: Geometry[] }>("/erase", JSON.stringify({ areas: [area, part] }))).areas;
  }

  async wand(request: WandRequest): Promise<Geometry[]> {
    return (await this.ask<{ areas: Geometry[] }>("/wand", JSON.stringify(request))).areas;
  }

  async areas(areas: Geometry[]): Promise<RegionAreas[]> {
    return (await this.ask<{ areas: RegionAreas[] }>("/areas", JSON.stringify({ areas }))).areas;
  }

  counts(): Promise<Counts> {
    return this.ask("/counts");
  }

  async some(ids: string[]): Promise<Annotation[]> {
    return (await this.ask<{ annotations: Annotation[] }>(`/some?ids=${ids.join(",")}`)).annotations;
  }

  about(id: string): Promise<About> {
    return this.ask(`/about?id=${id}`);
  }

  async changedByOthers(): Promise<Annotation[]> {
    return (await this.ask<{ annotations: Annotation[] }>("/changed")).annotations;
  }

  noted(ids: string[]): Promise<unknown> {
    return this.ask("/noted", JSON.stringify({ ids }));
  }

  table(query: URLSearchParams): Promise<TablePage> {
    return this.ask(`/table?${query}`);
  }

  tableLink(query: URLSearchParams): string {
    return `${this.root}/table.csv?${query}`;
  }

  get countsLink(): string {
    return `${this.root}/counts.csv`;
  }

  import(file: Blob): Promise<Imported> {
    return this.ask("/import", file);
  }

  private async ask<Answer>(path: string, body?: BodyInit): Promise<Answer> {
    let response: Response;
    try {
      response = await fetch(this.root + path, body === undefined ? {} : { method: "POST", body });
    } catch {
      throw new Refused(0, "away", "The server is not responding.");
    }
    if (!response.ok) {
      const answer = (await response.json().catch(() => ({}))) as { code?: string; message?: string };
      throw new Refused(response.status, answer.code ?? "", answer.message ?? `The server answered ${response.status}.`);
    }
    return (await response.json()) as Answer;
  }
}
