// The selection and its edits: every edit is one undoable step, and is sent to the server at once.
import type { Point } from "../view/geometry";
import { type Api, Refused } from "./storage/api";
import { History } from "./storage/history";
import type { Model } from "./storage/model";
import { type Corner, cornersOf, isArea, moved, pathsOf, withCorner, withNewCorner, withoutCorner, withPaths } from "./drawing/shapes";
import { newId } from "./storage/sync";
import { type Content, contentOf, type Geometry, type Kind } from "./types";

export interface EditorEvents {
  changed(): void;
  /** There are changes to send. */
  edited(): void;
  say(text: string): void;
}

export class Editor {
  readonly history = new History();
  /** Ids of the selected annotations, in order of selection. */
  chosen: string[] = [];
  /** Active corner, moved by keys; belongs to the annotation selected last. */
  corner: Corner | null = null;
  /** Class of the annotation drawn next. */
  className: string | null = null;

  constructor(
    private readonly model: Model,
    private readonly api: Api,
    private readonly slide: { width_px0: number; height_px0: number },
    private readonly events: EditorEvents,
  ) {}

  get last(): string | null {
    return this.chosen.at(-1) ?? null;
  }

  get lastContent(): Content | null {
    return this.last === null ? null : this.model.content(this.last);
  }

  choose(id: string | null, isMore = false): void {
    if (id === null) {
      this.chosen = isMore ? this.chosen : [];
    } else if (isMore && this.chosen.includes(id)) {
      this.chosen = this.chosen.filter((other) => other !== id);
    } else {
      this.chosen = isMore ? [...this.chosen, id] : [id];
    }
    this.corner = null;
    this.events.changed();
  }

  add(kind: Kind, geometry: Geometry): void {
    const content: Content = { kind, object_type: "annotation", geometry: this.inside(geometry), class: this.className, note: "", deleted: false };
    const id = newId();
    this.apply(`draw ${kind}`, [[id, content]]);
    this.choose(id);
  }

  /** Set the class of the selection, and of annotations drawn next. */
  classify(name: string | null): void {
    this.className = name;
    this.change("class", (content) => (content.class === name ? null : { ...content, class: name }));
  }

  note(text: string): void {
    const id = this.last;
    const content = this.lastContent;
    if (id !== null && content && content.note !== text) {
      this.apply("note", [[id, { ...content, note: text }]]);
    }
  }

  delete(): void {
    this.change("delete", (content) => ({ ...content, deleted: true }));
    this.choose(null);
  }

  moveBy(by: Point): void {
    const { width_px0, height_px0 } = this.slide;
    this.change("move", (content) => ({ ...content, geometry: moved(content.geometry, by, width_px0, height_px0) }));
  }

  moveCorner(corner: Corner, to: Point): void {
    this.reshape("move corner", (geometry) => withCorner(geometry, corner, this.onSlide(to)));
  }

  addCorner(behind: Corner, at: Point): void {
    this.reshape("add corner", (geometry) => withNewCorner(geometry, behind, this.onSlide(at)));
    this.corner = { path: behind.path, index: behind.index + 1 };
  }

  /** Remove the active corner. */
  deleteCorner(): void {
    const [corner, id, content] = [this.corner, this.last, this.lastContent];
    if (!corner || id === null || !content) {
      return;
    }
    const geometry = withoutCorner(content.geometry, corner);
    this.corner = null;
    if (geometry) {
      this.apply("remove corner", [[id, { ...content, kind: kindAfterReshape(content.kind), geometry }]]);
    } else {
      this.delete();
    }
  }

  /** Go to the next or previous corner; without an active corner, to the first or last one. */
  nextCorner(step: 1 | -1): void {
    const content = this.lastContent;
    const corners = content ? cornersOf(content.geometry) : [];
    const at = corners.findIndex(({ path, index }) => path === this.corner?.path && index === this.corner.index);
    const from = at < 0 && step < 0 ? 0 : at;
    this.corner = corners.length ? corners[(from + step + corners.length) % corners.length]! : null;
    this.events.changed();
  }

  /** Merge the selected areas into one, with the class and note of the first. */
  async join(): Promise<void> {
    const parts = this.areas();
    if (parts.length < 2) {
      this.events.say("Select at least two areas to join: Shift-click adds one.");
      return;
    }
    await this.combine("join", async () => {
      const [first] = parts;
      const [area] = await this.api.join(parts.map(([, { geometry }]) => geometry));
      return [parts, [{ ...first![1], kind: "polygon" as const, geometry: area! }]];
    });
  }

  /** Cut the selected area along a line. */
  async split(line: Geometry): Promise<void> {
    const part = this.areas().at(-1);
    if (!part) {
      this.events.say("First select the area to split.");
      return;
    }
    await this.combine("split", async () => {
      const areas = await this.api.split(part[1].geometry, line);
      return [[part], areas.map((geometry) => ({ ...part[1], kind: "polygon" as const, geometry }))];
    });
  }

  undo(): void {
    this.put(this.history.undo());
  }

  redo(): void {
    this.put(this.history.redo());
  }

  /** The local version continues under another id, because another user's version keeps the old one. */
  renamed(id: string, to: string): void {
    this.history.rename(id, to);
    this.chosen = this.chosen.map((other) => (other === id ? to : other));
  }

  /** Apply new contents as one undoable step. */
  apply(label: string, contents: [string, Content][]): void {
    const items = contents.map(([id, after]) => {
      const before = this.model.content(id);
      return { id, before: before && contentOf(before), after: contentOf(after) };
    });
    this.history.add({ label, items });
    this.put(contents);
  }

  private async combine(label: string, make: () => Promise<[[string, Content][], Content[]]>): Promise<void> {
    try {
      const [old, created] = await make();
      // The first (largest) piece keeps the first area's id, so that its history continues.
      const ids = created.map((_, index) => (index === 0 ? old[0]![0] : newId()));
      const deleted = old.slice(1).map(([id, content]): [string, Content] => [id, { ...content, deleted: true }]);
      this.apply(label, [...created.map((content, index): [string, Content] => [ids[index]!, content]), ...deleted]);
      [this.chosen, this.corner] = [ids, null];
      this.events.changed();
    } catch (error) {
      if (!(error instanceof Refused)) {
        throw error;
      }
      this.events.say(error.status === 0 ? `The server is not responding, and ${label} needs it. Try again.` : error.message);
    }
  }

  private areas(): [string, Content][] {
    return this.chosen.flatMap((id): [string, Content][] => {
      const content = this.model.content(id);
      return content && !content.deleted && isArea(content.geometry) ? [[id, content]] : [];
    });
  }

  private change(label: string, change: (content: Content) => Content | null): void {
    const changed = this.chosen.flatMap((id): [string, Content][] => {
      const content = this.model.content(id);
      const after = content && change(content);
      return after ? [[id, after]] : [];
    });
    if (changed.length) {
      this.apply(label, changed);
    }
  }

  private reshape(label: string, change: (geometry: Geometry) => Geometry): void {
    const [id, content] = [this.last, this.lastContent];
    if (id !== null && content) {
      this.apply(label, [[id, { ...content, kind: kindAfterReshape(content.kind), geometry: change(content.geometry) }]]);
    }
  }

  private put(contents: [string, Content][]): void {
    contents.forEach(([id, content]) => this.model.put(id, content));
    this.chosen = this.chosen.filter((id) => this.model.content(id)?.deleted === false);
    if (contents.length) {
      this.events.edited();
    }
    this.events.changed();
  }

  private onSlide({ x, y }: Point): Point {
    return { x: Math.min(Math.max(x, 0), this.slide.width_px0), y: Math.min(Math.max(y, 0), this.slide.height_px0) };
  }

  private inside(geometry: Geometry): Geometry {
    const paths = pathsOf(geometry).map((path) => ({ ...path, points: path.points.map((point) => this.onSlide(point)) }));
    return withPaths(geometry, paths);
  }
}

/** Kind after a corner was edited: a rectangle or an ellipse becomes a polygon. */
function kindAfterReshape(kind: Kind): Kind {
  return kind === "rectangle" || kind === "ellipse" ? "polygon" : kind;
}
