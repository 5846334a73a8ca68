// The selection and its edits: every edit is one undoable step, and is sent to the server at once.
import type { Point } from "../view/geometry";
import { type AnnotationApi, Refused } from "./storage/api";
import { History } from "./storage/history";
import type { Model } from "./storage/model";
import { onSlide } from "./drawing/clipping";
import { boundsOfGeometry, type Corner, cornersOf, isArea, moved, withCorner, withNewCorner, withoutCorner } from "./drawing/shapes";
import { newId } from "./storage/sync";
import { type Annotation, type Content, contentOf, drawing, type Geometry, type Kind } from "./types";

export interface EditorEvents {
  changed(): void;
  /** There are changes to send. */
  edited(): void;
  say(text: string): void;
  /** Ask whether drawings of others may be changed; `go` continues. */
  askOthers(label: string, others: Annotation[], go: () => void): void;
}

export class Editor {
  readonly history = new History();
  /** Ids of the selected annotations, in order of selection. */
  chosen: string[] = [];
  /** Active corner, moved by keys; belongs to the annotation selected last. */
  corner: Corner | null = null;
  /** Class of the annotation drawn next. */
  className: string | null = null;
  /** The signed-in user; null until it is known. */
  me: string | null = null;
  /** Drawings of others that the user has agreed to change. */
  private readonly confirmed = new Set<string>();

  constructor(
    private readonly model: Model,
    private readonly api: AnnotationApi,
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

  /** Add a drawing; what lies beyond the slide is cut off. */
  add(kind: Kind, geometry: Geometry, more: Partial<Content> = {}): void {
    const clipped = onSlide(geometry, this.slide.width_px0, this.slide.height_px0);
    if (!clipped) {
      this.events.say("All of this drawing lies outside the slide.");
      return;
    }
    const isOutline = kind !== "ruler" && kind !== "area" && kind !== "bookmark";
    const id = newId();
    this.apply(`draw ${kind}`, [[id, drawing(kind, clipped, { class: isOutline ? this.className : null, ...more })]]);
    this.choose(id);
  }

  /** Answer under an annotation. */
  reply(parent: string, note: string): void {
    const geometry = this.model.content(parent)?.geometry;
    if (geometry) {
      const [left, top, right, bottom] = boundsOfGeometry(geometry);
      const at: Geometry = { type: "Point", coordinates: [this.onSlide({ x: (left + right) / 2, y: 0 }).x, this.onSlide({ x: 0, y: (top + bottom) / 2 }).y] };
      this.apply("answer", [[newId(), drawing("reply", at, { note, parent })]]);
    }
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

  /** Delete an annotation, selected or not. */
  remove(id: string): void {
    const content = this.model.content(id);
    if (content) {
      this.apply("delete", [[id, { ...content, deleted: true }]]);
    }
  }

  /** Set the note of an annotation, selected or not. */
  describe(id: string, note: string): void {
    const content = this.model.content(id);
    if (content && content.note !== note) {
      this.apply("note", [[id, { ...content, note }]]);
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
      return [parts, [{ ...first![1], kind: kindOfArea(first![1].kind), geometry: area! }]];
    });
  }

  /**
   * Add an area to the selected one, or take it away from it; without a selection, draw it.
   * @param pieces areas that overlap and together are the one to add.
   */
  async brush(pieces: Geometry[], isErasing: boolean): Promise<void> {
    const part = this.areas().at(-1);
    if (!part && isErasing) {
      this.events.say("First select the area to erase from.");
      return;
    }
    if (!part && pieces.length === 1) {
      this.add("polygon", pieces[0]!);
      return;
    }
    const { width_px0, height_px0 } = this.slide;
    await this.combine(isErasing ? "erase" : "brush", async () => {
      const stroke = pieces.length > 1 && (isErasing || !part) ? (await this.api.join(pieces))[0]! : pieces[0]!;
      const content = part?.[1] ?? drawing("polygon", stroke, { class: this.className });
      let area = stroke;
      if (part) {
        area = isErasing ? (await this.api.erase(content.geometry, stroke))[0]! : (await this.api.join([content.geometry, ...pieces]))[0]!;
      }
      const geometry = onSlide(area, width_px0, height_px0) ?? content.geometry;
      return [part ? [part] : [], [{ ...content, kind: kindOfArea(content.kind), geometry }]];
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
      return [[part], areas.map((geometry) => ({ ...part[1], kind: kindOfArea(part[1].kind), geometry }))];
    });
  }

  undo(): void {
    void this.step(false);
  }

  redo(): void {
    void this.step(true);
  }

  /** The local version continues under another id, because another user's version keeps the old one. */
  renamed(id: string, to: string): void {
    this.history.rename(id, to);
    this.chosen = this.chosen.map((other) => (other === id ? to : other));
  }

  /** Apply new contents as one undoable step; drawings of others are changed only after a question. */
  apply(label: string, contents: [string, Content][]): void {
    const others = contents.flatMap(([id]) => {
      const saved = this.model.saved(id);
      return saved && saved.author !== this.me && !this.confirmed.has(id) ? [saved] : [];
    });
    if (others.length === 0 || this.me === null) {
      this.applyNow(label, contents);
      return;
    }
    this.events.askOthers(label, others, () => {
      others.forEach(({ id }) => this.confirmed.add(id));
      this.applyNow(label, contents);
    });
  }

  private applyNow(label: string, contents: [string, Content][]): void {
    const items = contents.map(([id, after]) => {
      const before = this.model.content(id);
      return { id, before: before && contentOf(before), after: contentOf(after) };
    });
    this.history.add({ label, items });
    this.put(contents);
  }

  /** Undo or redo a step, unless others have changed the same annotations since. */
  private async step(isRedo: boolean): Promise<void> {
    const step = this.history.next(isRedo);
    if (!step) {
      return;
    }
    try {
      const unknown = step.items.map(({ id }) => id).filter((id) => this.model.content(id) === null);
      if (unknown.length) {
        this.model.learn(await this.api.some(unknown), true); // after a reload
      }
    } catch (error) {
      this.sayWhy(error, isRedo ? "redo" : "undo");
      return;
    }
    if (this.history.next(isRedo) !== step) {
      return; // the key was pressed again meanwhile
    }
    // The server repairs and rounds outlines, so they are not compared: whoever changed them last is.
    const isOurs = step.items.every(({ id, before, after }) => {
      const [saved, isGone] = [this.model.saved(id), this.model.content(id)?.deleted ?? true];
      const wasGone = (isRedo ? before : after)?.deleted ?? true;
      return isGone === wasGone && (saved === null || saved.changed_by === this.me);
    });
    if (!isOurs) {
      this.history.drop(isRedo);
      this.events.say(`Cannot ${isRedo ? "redo" : "undo"} "${step.label}": it has been changed since.`);
      this.events.changed();
      return;
    }
    this.put(isRedo ? this.history.redo() : this.history.undo());
  }

  private sayWhy(error: unknown, label: string): void {
    if (!(error instanceof Refused)) {
      throw error;
    }
    this.events.say(error.status === 0 ? `The server is not responding, and ${label} needs it. Try again.` : error.message);
  }

  private async combine(label: string, make: () => Promise<[[string, Content][], Content[]]>): Promise<void> {
    try {
      const [old, created] = await make();
      // The first (largest) piece keeps the first area's id, so that its history continues.
      const ids = created.map((_, index) => (index === 0 && old[0] ? old[0][0] : newId()));
      const deleted = old.slice(1).map(([id, content]): [string, Content] => [id, { ...content, deleted: true }]);
      this.apply(label, [...created.map((content, index): [string, Content] => [ids[index]!, content]), ...deleted]);
      [this.chosen, this.corner] = [ids, null];
      this.events.changed();
    } catch (error) {
      this.sayWhy(error, label);
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
}

/** Kind after a corner was edited: a rectangle or an ellipse becomes a polygon. */
function kindAfterReshape(kind: Kind): Kind {
  return kind === "rectangle" || kind === "ellipse" ? "polygon" : kind;
}

/** Kind of an area after its outline was combined with another one. */
function kindOfArea(kind: Kind): Kind {
  return kind === "area" || kind === "count" ? kind : "polygon";
}
