// Requests to the server.
import type { Annotation, Changes, Draft, Geometry, Saved } from "../types";

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
    const changes = drafts.map(({ id, revision, deleted, kind, object_type, geometry, class: name, note }) => ({
      id, revision, deleted, kind, object_type, geometry, class: name, note,
    }));
    return this.ask("", JSON.stringify({ changes }));
  }

  async join(areas: Geometry[]): Promise<Geometry[]> {
    return (await this.ask<{ areas: Geometry[] }>("/join", JSON.stringify({ areas }))).areas;
  }

  async split(area: Geometry, line: Geometry): Promise<Geometry[]> {
    return (await this.ask<{ areas: Geometry[] }>("/split", JSON.stringify({ areas: [area], line }))).areas;
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
