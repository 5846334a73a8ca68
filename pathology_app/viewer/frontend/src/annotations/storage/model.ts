// The annotations that this page knows one by one: chosen, changed here, or changed by others meanwhile. The thousands
// of others are in the tiles.
import type { Entry, Outbox } from "./outbox";
import { contains } from "./shapes";
import { type Annotation, type Content, contentOf, type Draft } from "./types";
import { shortId } from "./vector_tile";

export class Model {
  private readonly known = new Map<string, Annotation>();
  /** Ids of those drawn one by one, and not with their tile. */
  private readonly apart = new Map<string, string>();

  /** @param changed something is to be drawn in another way. */
  constructor(
    private readonly outbox: () => Outbox | null,
    private readonly changed: () => void,
  ) {}

  /** As it is here, whether saved or not. */
  content(id: string): Content | null {
    return this.outbox()?.get(id)?.draft ?? this.known.get(id) ?? null;
  }

  /** As the server said last. */
  saved(id: string): Annotation | null {
    return this.known.get(id) ?? null;
  }

  isApart(short: string): boolean {
    return this.apart.has(short);
  }

  /** Those drawn one by one that are not deleted. */
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

  /** What the server says of some: kept, and drawn apart if asked. */
  learn(annotations: Iterable<Annotation>, areApart: boolean): void {
    for (const each of annotations) {
      const before = this.known.get(each.id);
      if (!before || before.revision <= each.revision) {
        this.known.set(each.id, each);
      }
      if (areApart) {
        this.apart.set(shortId(each.id), each.id);
      }
    }
    this.changed();
  }

  /** Change one here. */
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

  /** Leave to the tiles all but some, once the tiles are newer than they are. */
  leaveToTiles(but: (id: string) => boolean): void {
    for (const [short, id] of this.apart) {
      if (!but(id) && !this.outbox()?.get(id)) {
        this.apart.delete(short);
      }
    }
    this.changed();
  }

  /** Those drawn apart that lie under a point. */
  under(x: number, y: number, within: number): string[] {
    return [...this.shown()].filter(([, { geometry }]) => contains(geometry, { x, y }, within)).map(([id]) => id);
  }
}
