// Annotations known individually: selected or changed on this page, or recently changed by others. All the others, possibly
// thousands, are only in the tiles.
import type { Entry, Outbox } from "./outbox";
import { contains } from "../drawing/shapes";
import { type Annotation, type Content, contentOf, type Draft } from "../types";
import { shortId } from "../drawing/vector_tile";

export class Model {
  private readonly known = new Map<string, Annotation>();
  /** Ids of annotations drawn individually instead of with their tile. */
  private readonly apart = new Map<string, string>();

  /** @param changed called when something must be redrawn. */
  constructor(
    private readonly outbox: () => Outbox | null,
    private readonly changed: () => void,
  ) {}

  /** Local content, saved or not. */
  content(id: string): Content | null {
    return this.outbox()?.get(id)?.draft ?? this.known.get(id) ?? null;
  }

  /** Last version received from the server. */
  saved(id: string): Annotation | null {
    return this.known.get(id) ?? null;
  }

  isApart(short: string): boolean {
    return this.apart.has(short);
  }

  /** Individually drawn annotations that are not deleted. */
  *shown(): Generator<[string, Content]> {
    for (const id of this.apart.values()) {
      const content = this.content(id);
      if (content && !content.deleted) {
        yield [id, content];
      }
    }
  }

  get numApart(): number {
    return this.apart.size;
  }

  /** Store annotations from the server; with `areApart`, also draw them individually. */
  learn(annotations: Iterable<Annotation>, areApart: boolean): void {
    for (const annotation of annotations) {
      const before = this.known.get(annotation.id);
      if (!before || before.revision <= annotation.revision) {
        this.known.set(annotation.id, annotation);
      }
      if (areApart) {
        this.apart.set(shortId(annotation.id), annotation.id);
      }
    }
    this.changed();
  }

  /** Change an annotation locally. */
  put(id: string, content: Content): void {
    const outbox = this.outbox()!;
    const draft: Draft = { ...contentOf(content), id, revision: outbox.get(id)?.draft.revision ?? this.known.get(id)?.revision ?? 0 };
    this.apart.set(shortId(id), id);
    outbox.put(draft);
    this.changed();
  }

  adopted(entries: Entry[]): void {
    entries.forEach(({ draft }) => this.apart.set(shortId(draft.id), draft.id));
    this.changed();
  }

  /** Draw annotations with their tiles again, except those in `but`; call it once the tiles are up to date. */
  leaveToTiles(but: (id: string) => boolean): void {
    for (const [short, id] of this.apart) {
      if (!but(id) && !this.outbox()?.get(id)) {
        this.apart.delete(short);
      }
    }
    this.changed();
  }

  /** Ids of individually drawn annotations at a point. */
  under(x: number, y: number, within: number): string[] {
    return [...this.shown()].filter(([, { geometry }]) => contains(geometry, { x, y }, within)).map(([id]) => id);
  }
}
