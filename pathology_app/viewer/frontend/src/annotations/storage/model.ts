// Annotations known individually: selected or changed on this page, or recently changed by others. All the others, possibly
// thousands, are only in the tiles.
import type { Entry, Outbox } from "./outbox";
import { contains } from "../drawing/shapes";
import { type Annotation, type Content, contentOf, type Draft, isDrawnApart } from "../types";
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

  /** Number of individually drawn annotations that tiles could draw. */
  get numApart(): number {
    let number = 0;
    for (const id of this.apart.values()) {
      const kind = this.content(id)?.kind;
      number += kind !== undefined && isDrawnApart(kind) ? 0 : 1;
    }
    return number;
  }

  /** Annotations of a kind that are not deleted, of those known individually. */
  *ofKind(kind: Content["kind"]): Generator<[string, Content]> {
    for (const [id, content] of this.shown()) {
      if (content.kind === kind) {
        yield [id, content];
      }
    }
  }

  /** Marks of a count that were added (1) or taken away (-1) since the slide's counter was at `change`. */
  *marksSince(countId: string, change: number): Generator<Content & { number: number }> {
    for (const id of this.apart.values()) {
      const [saved, draft] = [this.known.get(id), this.outbox()?.get(id)?.draft];
      const content = draft ?? saved;
      if (content?.kind !== "mark" || content.parent !== countId) {
        continue;
      }
      // Counted in the server's numbers, as far as is known: live then, or changed since then from a live one.
      const wasCounted = saved !== undefined && (saved.change <= change ? !saved.deleted : saved.revision > 1 && saved.deleted);
      if (wasCounted) {
        yield { ...saved, number: -1 };
      }
      if (!content.deleted) {
        yield { ...content, number: 1 };
      }
    }
  }

  /** Forget a change that was not saved, and draw what the server has. */
  discard(id: string): void {
    this.outbox()?.remove(id);
    if (!this.known.has(id)) {
      this.apart.delete(shortId(id));
    }
    this.changed();
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

  /**
   * Draw annotations with their tiles again, except those in `but` and those that are in no tile; call it once the tiles
   * are up to date.
   */
  leaveToTiles(but: (id: string) => boolean): void {
    for (const [short, id] of this.apart) {
      const kind = this.content(id)?.kind;
      if (!but(id) && !this.outbox()?.get(id) && (kind === undefined || !isDrawnApart(kind))) {
        this.apart.delete(short);
      }
    }
    this.changed();
  }

  /** Ids of individually drawn annotations at a point. */
  under(x: number, y: number, within: number): string[] {
    const isOnSlide = ({ kind }: Content): boolean => kind !== "reply" && kind !== "bookmark"; // these are listed, not drawn
    return [...this.shown()].filter(([, content]) => isOnSlide(content) && contains(content.geometry, { x, y }, within)).map(([id]) => id);
  }
}
