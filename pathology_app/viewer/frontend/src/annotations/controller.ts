// Annotations on one slide: drawing, selecting, editing and saving. Most come as tiles; those in use are drawn individually.
import { toggle } from "../panel/elements";
import type { Point, Transform } from "../view/geometry";
import { type Annotating, MEASURING_TOOLS, type Surroundings, type ToolChoice } from "./annotating";
import { type AnnotationApi, Refused } from "./storage/api";
import { idAt } from "./choosing";
import { HINTS, Sketch } from "./drawing/tools";
import { Editor } from "./editor";
import { Finished } from "./finished";
import { Hand } from "./hand";
import { keyPressed } from "./keys";
import { Model } from "./storage/model";
import { AnnotationPanel } from "./panel/content";
import { boundsOfGeometry } from "./drawing/shapes";
import { Sync } from "./storage/sync";
import { TileLayer } from "./drawing/tile_layer";
import { type Annotation, totalOf } from "./types";
import { Bookmarks } from "./bookmarks/panel";
import { countActions } from "./counting/actions";
import { CountClasses } from "./counting/classes";
import { Counter } from "./counting/counter";
import { CountPanel } from "./counting/panel";
import { sizeText } from "./drawing/sizes";
import { OthersDialog } from "./others";
import { OwnChanges } from "./own_changes";
import { Painter } from "./painter";
import { Concerns } from "./panel/concerns";
import { AnnotationTable } from "./table/table";
import { TextPrompt } from "./text_prompt";

const SELECT_HINT = "Select: click an annotation; Shift-click adds one. Drag it, its corners or the dots between them.";
/** Reach of a click, and of a finger. */
const [CLICK_PX, TOUCH_PX] = [6, 16];
/** Largest file that a page may send (pathology_app/annotating/bodies.py). */
const MOST_BYTES = 16 * 2 ** 20;
/** With more individually drawn annotations than this, the tiles are requested again instead. */
const MOST_APART = 400;
const SMALLEST_VIEW_PX0 = 200;

export class Annotations implements Annotating {
  readonly model: Model;
  readonly editor: Editor;
  readonly sync: Sync;
  readonly tiles: TileLayer;
  readonly panel: AnnotationPanel;
  readonly hand: Hand;
  readonly counter: Counter;
  readonly countClasses = new CountClasses(storeOfBrowser());
  readonly countPanel: CountPanel;
  readonly bookmarks: Bookmarks;
  readonly table: AnnotationTable;
  /** For the toolbar. */
  readonly button = toggle("Annotate", "Draw and edit annotations (a)", () => this.toggleAnnotating());
  /** Dialogs of annotations. */
  readonly dialogs = document.createElement("div");
  sketch: Sketch | null = null;
  private tool: ToolChoice | null = null;
  private readonly concerns: Concerns;
  private readonly painter: Painter;
  private readonly finished: Finished;
  private readonly othersDialog = new OthersDialog();
  private readonly textPrompt = new TextPrompt();
  private readonly ownChanges: OwnChanges;
  private askedChange = -1;
  private modelClasses: string[] = [];
  /** Whether the last point was set by a key: the centre of the screen is then marked. */
  isByKey = false;
  private reach_px = CLICK_PX;
  private advice = "";
  /** The last message, until the next click. */
  private message = "";

  /** @param isScratch whether nothing may be saved on the server, and only measuring tools are offered. */
  constructor(
    private readonly around: Surroundings,
    private readonly api: AnnotationApi,
    readonly isScratch: boolean,
    signal: AbortSignal,
  ) {
    const { slideId, width_px0, height_px0, mpp0, redraw } = around;
    const say = (text: string): void => this.say(text);
    this.model = new Model(() => this.sync.outbox, () => this.relook());
    this.editor = new Editor(this.model, api, around, {
      changed: () => this.refresh(),
      edited: () => this.sync.kick(),
      say,
      askOthers: (label, others, go) => this.askOthers(label, others, go),
    });
    this.sync = new Sync(api, this.model, slideId, isScratch ? null : storeOfBrowser(), {
      changed: () => this.refresh(),
      say,
      manyChanged: () => this.askTilesAgain(),
      kept: (id, newId) => this.editor.renamed(id, newId),
      saved: () => this.counter.refresh(),
      opened: ({ project, me }) => this.opened(project, me),
    });
    this.panel = new AnnotationPanel(this, this.editor, this.model, api, mpp0, () => this.relook());
    this.counter = new Counter(api, this.model, this.editor, { mpp0, width_px0, height_px0, middle: () => around.middle(), say, changed: () => this.refresh() }, () => this.countClasses.current);
    const actions = countActions(() => this.counter, this.countClasses, {
      takeTool: () => this.take("count"),
      show: (id) => void this.goToId(id).then(() => this.editor.choose(null)),
      colourOf: (name) => this.panel.classes.colour(name),
      say,
      changed: () => this.refresh(),
    });
    this.countPanel = new CountPanel(this.counter, this.countClasses, actions, api.countsLink);
    this.bookmarks = new Bookmarks(slideId, mpp0, this.model, {
      save: () => this.bookmark(),
      go: (content) => this.around.showView(content.view ?? ""),
      remove: (id) => this.editor.remove(id),
      describe: (id, text) => this.editor.describe(id, text),
    });
    this.table = new AnnotationTable(api, { goTo: (id) => void this.goToId(id) });
    this.concerns = new Concerns({
      show: (id) => void this.goToId(id),
      discard: (id) => this.discard(id),
      restore: (annotation) => void this.ownChanges.restore(annotation),
      noted: (ids) => void this.ownChanges.accept(ids),
    });
    this.ownChanges = new OwnChanges(api, this.model, this.editor, { changed: () => this.refresh(), failed: (error) => this.sayWhy(error) });
    this.panel.element.prepend(this.concerns.element);
    this.dialogs.append(this.othersDialog.element, this.textPrompt.element);
    const look = {
      colourOf: (name: string | null) => (this.panel.classes.isSeen(name) ? this.panel.classes.colour(name) : null),
      isHidden: (short: string) => this.model.isApart(short),
    };
    this.tiles = new TileLayer(api.tile, width_px0, height_px0, look, redraw);
    this.hand = new Hand(around, this);
    this.painter = new Painter(around, this);
    this.finished = new Finished(api, this.editor, this.textPrompt, {
      mpp0,
      scale: () => around.transform().scale,
      brush_px: () => this.panel.brush_px,
      tolerance: () => this.panel.tolerance,
      placeCount: (region) => {
        this.counter.place(region);
        this.sketch = this.sketchFor("count");
      },
      failed: (error) => this.sayWhy(error),
    });
    this.hand.listen();
    document.addEventListener("keydown", (event) => keyPressed(event, this, around), { signal, capture: true });
    const touched = ({ pointerType }: PointerEvent): void => {
      this.isByKey = false;
      this.reach_px = pointerType === "mouse" ? CLICK_PX : TOUCH_PX;
    };
    around.stage.addEventListener("pointerdown", touched, { signal, capture: true });
    signal.addEventListener("abort", () => this.counter.end());
    void this.sync.start(signal);
  }

  get inHand(): ToolChoice | null {
    return this.tool;
  }

  get isDrawing(): boolean {
    return this.tool !== null && !["ruler", "area", "count"].includes(this.tool);
  }

  get mayAnnotate(): boolean {
    return this.sync.outbox !== null && this.sync.summary?.may_annotate === true;
  }

  /** Texts of the rulers and areas on the slide. */
  get measured(): string[] {
    return (["ruler", "area"] as const).flatMap((kind) => [...this.model.ofKind(kind)].map(([, { geometry }]) => sizeText(geometry, this.around.mpp0)));
  }

  /** Set the classes of this slide's models, which the class menu also offers. */
  setModelClasses(names: string[]): void {
    this.modelClasses = names;
  }

  take(tool: ToolChoice): void {
    if (!this.mayAnnotate || (this.isScratch && !MEASURING_TOOLS.includes(tool))) {
      this.say(this.sync.summary ? "You may not annotate here." : this.sync.state);
      return;
    }
    if (tool !== this.tool) {
      this.tool = tool;
      if (tool !== "select" && tool !== "brush" && tool !== "eraser" && tool !== "wand" && tool !== "split") {
        this.editor.choose(null);
      }
      if (this.isDrawing) {
        this.around.openPanel("Annotations");
      } else if (tool === "count") {
        this.around.openPanel("Counts");
      }
    }
    this.sketch = this.sketchFor(tool);
    this.refresh();
  }

  toggleAnnotating(): void {
    if (this.isDrawing) {
      this.putAway();
    } else {
      this.take("select");
    }
  }

  /** A button of a tool: take it, or put it away. */
  pressButton(tool: ToolChoice): void {
    if (this.tool === tool) {
      this.putAway();
    } else if (tool === "count") {
      this.count();
    } else {
      this.take(tool);
    }
  }

  count(): void {
    if (this.tool === "count") {
      this.counter.again();
    } else if (this.counter.active === null) {
      this.counter.begin(this.counter.shape);
    }
    this.take("count");
  }

  chooseCounted(number: number): boolean {
    if (this.tool !== "count") {
      return false;
    }
    this.countClasses.choose(number);
    this.refresh();
    return true;
  }

  bookmark(): void {
    if (!this.mayAnnotate || this.isScratch) {
      this.say("You may not save bookmarks here.");
      return;
    }
    const { middle, width_px0, height_px0 } = this.around;
    // The middle of the screen may be beside the slide.
    const within = (at: number, size: number): number => Math.min(Math.max(at, 0), size - 1);
    const { x, y } = middle();
    this.editor.add("bookmark", { type: "Point", coordinates: [within(x, width_px0), within(y, height_px0)] }, { view: this.around.view() });
    this.editor.choose(null);
    this.around.openPanel("Bookmarks");
  }

  openTable(): void {
    if (!this.isScratch) {
      this.table.toggle();
    }
  }

  /** Cancel the drawing, or else the selection, or else the tool. False if there was nothing to cancel. */
  layDown(): boolean {
    if (this.sketch?.hasBegun) {
      this.sketch.clear();
    } else if (this.editor.chosen.length) {
      this.editor.choose(null);
    } else if (this.tool) {
      [this.tool, this.sketch] = [null, null];
    } else if (this.table.isOpen) {
      this.table.toggle();
    } else {
      return false;
    }
    this.refresh();
    return true;
  }

  putAway(): void {
    [this.tool, this.sketch] = [null, null];
    this.refresh();
  }

  /** Handle a click, or Enter at the centre of the screen. @returns whether it was handled. */
  press(at: Point, isMore: boolean, isKey = false): boolean {
    if (this.tool === null) {
      return false;
    }
    this.isByKey = isKey;
    this.message = "";
    const near_px0 = this.reach_px / this.around.transform().scale;
    if (this.sketch) {
      this.sketch.press(at, near_px0);
      this.around.redraw();
    } else if (this.tool === "count") {
      this.counter.press(at);
      this.sketch = this.sketchFor("count");
      this.refresh();
    } else {
      void idAt(at, near_px0, this.api, this.model, this.editor.last).then(
        (id) => this.editor.choose(id, isMore),
        (error: unknown) => this.sayWhy(error),
      );
    }
    return true;
  }

  finish(): boolean {
    this.sketch?.finish();
    this.around.redraw();
    return this.tool !== null;
  }

  hover(at: Point | null): void {
    if (this.tool === "count") {
      this.counter.hover(at);
      this.advise();
      this.around.redraw();
    }
    if (this.sketch) {
      this.sketch.hover(at);
      this.around.redraw();
    }
  }

  /** Backspace: remove the last point of the drawing, or else act as Delete. */
  backspace(): boolean {
    const isDone = this.sketch?.undo() || (this.tool === "count" && this.counter.undo());
    this.around.redraw();
    return isDone || this.tool === "count" || this.delete();
  }

  /** Delete the active corner, or else the selection. False if there is neither. */
  delete(): boolean {
    if (this.tool === null || !this.editor.chosen.length) {
      return false;
    }
    if (this.editor.corner) {
      this.editor.deleteCorner();
    } else {
      this.editor.delete();
    }
    return true;
  }

  join(): void {
    void this.editor.join();
  }

  undo(): void {
    this.editor.undo();
  }

  redo(): void {
    this.editor.redo();
  }

  toggleShown(): void {
    this.panel.classes.toggleAll();
  }

  async find(words: string): Promise<Annotation[]> {
    try {
      return await this.api.found(words);
    } catch (error) {
      this.sayWhy(error);
      return [];
    }
  }

  goTo(annotation: Annotation): void {
    this.model.learn([annotation], true);
    this.show(annotation.id);
  }

  private async goToId(id: string): Promise<void> {
    try {
      if (this.model.content(id) === null) {
        this.model.learn(await this.api.some([id]), true);
      }
    } catch (error) {
      this.sayWhy(error);
    }
    this.show(id);
  }

  /** Select an annotation that is known, and show it. */
  private show(id: string): void {
    const annotation = this.model.content(id);
    if (!annotation || annotation.deleted) {
      this.say("This annotation has been deleted.");
      return;
    }
    this.editor.choose(id);
    const [left, top, right, bottom] = boundsOfGeometry(annotation.geometry);
    const side = Math.max(SMALLEST_VIEW_PX0, 1.6 * Math.max(right - left, bottom - top));
    this.around.showBox((left + right - side) / 2, (top + bottom - side) / 2, side, side);
  }

  importFile(file: File): void {
    if (file.size > MOST_BYTES) {
      this.say("Larger than 16 MiB: import it with gemslide annotations import.");
      return;
    }
    this.say(`Importing ${file.name}…`);
    void this.api.import(file).then(
      ({ saved, unchanged, beside, dropped }) => {
        const parts = [`${saved} imported`, unchanged && `${unchanged} already present`, beside && `${beside} added beside versions changed here in the meantime`, dropped && `${dropped} could not be imported`];
        this.say(`${parts.filter(Boolean).join(", ")}.`);
        this.sync.hurry();
      },
      (error: unknown) => this.sayWhy(error),
    );
  }

  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number): void {
    this.painter.draw(context, transform, ratio);
  }

  private sketchFor(tool: ToolChoice): Sketch | null {
    if (tool === "select" || (tool === "count" && (this.counter.active !== null || this.counter.shape !== "area"))) {
      return null;
    }
    return new Sketch(tool, this.around.mpp0, (geometry) => this.finished.done(tool, geometry), () => this.panel.brush_px);
  }

  private askOthers(label: string, others: Annotation[], go: () => void): void {
    if (this.sync.summary?.only_own) {
      const people = [...new Set(others.map(({ author }) => author))].join(", ");
      this.say(`Drawn by ${people}. On this slide, people may change only their own annotations; you can answer under it.`);
      return;
    }
    this.othersDialog.ask(label, others, go);
  }

  private opened(project: string, me: string): void {
    this.editor.me = me;
    this.editor.history.restore(storeOfTab(), `gemslide/undo/${project}/${this.around.slideId}/${me}`);
  }

  private discard(id: string): void {
    this.model.discard(id);
    this.editor.choose(null);
    this.say("");
  }

  /** After a change on the slide: ask for the counts, and what others have done to the user's own drawings. */
  private followChange(change: number): void {
    if (change !== this.askedChange) {
      this.askedChange = change;
      this.counter.refresh();
      this.table.refresh();
      void this.ownChanges.ask();
    }
  }

  private sayWhy(error: unknown): void {
    if (!(error instanceof Refused)) {
      throw error;
    }
    this.say(error.message);
  }

  /** Repaint after an annotation differs from its tile in shape or colour. */
  private relook(): void {
    this.tiles.lookChanged();
    if (this.model.numApart > MOST_APART && this.sync.isSaved) {
      this.askTilesAgain();
    }
    this.around.redraw();
  }

  private askTilesAgain(): void {
    const { summary } = this.sync;
    if (summary) {
      this.tiles.setVersion(`${summary.project}-${summary.change}`, totalOf(summary) === 0);
      const chosen = new Set(this.editor.chosen);
      this.model.leaveToTiles((id) => chosen.has(id));
    }
    this.around.redraw();
  }

  private refresh(): void {
    const { summary, state, isSaved } = this.sync;
    if (summary) {
      this.panel.classes.update(summary);
      const used = summary.classes.map(([name]) => name);
      this.panel.classMenu.offer([...used, ...this.modelClasses.filter((name) => !used.includes(name))]);
    }
    this.button.setAttribute("aria-pressed", String(this.isDrawing));
    const mayExport = summary?.may_export ?? false;
    this.panel.show(this.tool, state, isSaved, this.mayAnnotate && !this.isScratch, mayExport, summary?.change ?? 0);
    this.countPanel.show(this.tool === "count", this.mayAnnotate, mayExport);
    this.bookmarks.show(this.mayAnnotate && !this.isScratch, mayExport);
    this.table.allowExport(mayExport);
    this.concerns.update(this.sync.outbox?.all().filter(({ refused }) => refused !== undefined) ?? [], this.ownChanges.list);
    if (summary) {
      this.followChange(summary.change);
    }
    this.around.toolChanged(this.tool);
    this.advise();
    this.around.redraw();
  }

  /** Show a message in the panel, and over the slide while a tool is in hand. */
  private say(text: string): void {
    this.panel.say(text);
    this.message = text;
    this.advise();
  }

  private advise(): void {
    const hint = this.tool === null ? "" : this.tool === "select" ? SELECT_HINT : this.tool === "count" ? this.counter.hint() : HINTS[this.tool];
    const advice = this.tool === null ? "" : [this.message, hint].filter(Boolean).join(" ");
    if (advice !== this.advice) {
      this.advice = advice;
      this.around.advise(advice);
    }
  }
}

function storeOfTab(): Storage | null {
  try {
    return window.sessionStorage;
  } catch {
    return null;
  }
}

/** The browser's storage; null if it is forbidden. */
function storeOfBrowser(): Storage | null {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}
