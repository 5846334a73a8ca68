// Annotations on one slide: drawing, selecting, editing and saving. Most come as tiles; those in use are drawn individually.
import { toggle } from "../panel/elements";
import type { Transform } from "../view/geometry";
import { type Annotating, MEASURING_TOOLS, type Surroundings, type ToolChoice } from "./annotating";
import { Advice } from "./advice";
import { type AnnotationApi, Refused } from "./storage/api";
import { HINTS, Sketch } from "./drawing/tools";
import { Editor } from "./editor";
import { Finished } from "./finished";
import { Hand } from "./hand";
import { keyPressed } from "./keys";
import { Model } from "./storage/model";
import { storeOfBrowser, storeOfTab } from "../page/stores";
import { AnnotationPanel } from "./panel/content";
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
import { Pointing } from "./pointing";
import { Concerns } from "./panel/concerns";
import { AnnotationTable } from "./table/table";
import { TextPrompt } from "./text_prompt";
import { ToolInHand } from "./tool_in_hand";
import { Visits } from "./visits";

const SELECT_HINT = "Select: click an annotation; Shift-click adds one. Drag it, its corners or the dots between them.";
/** With more individually drawn annotations than this, the tiles are requested again instead. */
const MOST_APART = 400;

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
  private readonly held: ToolInHand;
  readonly pointing: Pointing;
  private readonly concerns: Concerns;
  private readonly painter: Painter;
  private readonly finished: Finished;
  private readonly othersDialog = new OthersDialog();
  private readonly textPrompt = new TextPrompt();
  private readonly ownChanges: OwnChanges;
  private readonly visits: Visits;
  private hasBegun = false;
  private askedChange = -1;
  private modelClasses: string[] = [];
  private readonly advice: Advice;

  /** @param isScratch whether nothing may be saved on the server, and only measuring tools are offered. */
  constructor(
    private readonly around: Surroundings,
    api: AnnotationApi,
    readonly isScratch: boolean,
    private readonly signal: AbortSignal,
  ) {
    const { slideId, width_px0, height_px0, mpp0, redraw } = around;
    this.advice = new Advice(around.advise, () => this.hint);
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
    this.visits = new Visits(api, this.model, this.editor, around, { say, failed: (error) => this.sayWhy(error), imported: () => this.sync.hurry() });
    this.panel = new AnnotationPanel(this, this.editor, this.model, api, mpp0, () => this.relook());
    const counted = { mpp0, width_px0, height_px0, middle: () => around.middle(), say, changed: () => this.refresh(), awaitsAnswer: () => this.sync.awaitsAnswer };
    this.counter = new Counter(api, this.model, this.editor, counted, () => this.countClasses.current);
    const actions = countActions(() => this.counter, this.countClasses, {
      takeTool: () => this.take("count"),
      show: (id) => void this.visits.goToId(id).then(() => this.editor.choose(null)),
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
    this.table = new AnnotationTable(api, { goTo: (id) => void this.visits.goToId(id) });
    this.concerns = new Concerns({
      show: (id) => void this.visits.goToId(id),
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
    this.held = new ToolInHand(around, this.editor, this.counter, this.countClasses, {
      mayTake: (tool) => this.mayTake(tool),
      done: (tool, geometry) => this.finished.done(tool, geometry),
      brush_px: () => this.panel.brush_px,
      changed: () => this.refresh(),
    });
    const pointed = { changed: () => this.refresh(), failed: (error: unknown) => this.sayWhy(error) };
    this.pointing = new Pointing(around, api, this.model, this.editor, this.counter, this.held, this.advice, pointed, signal);
    this.hand = new Hand(around, this);
    this.painter = new Painter(around, this);
    this.finished = new Finished(api, this.editor, this.textPrompt, {
      mpp0,
      scale: () => around.transform().scale,
      brush_px: () => this.panel.brush_px,
      tolerance: () => this.panel.tolerance,
      placeCount: (region) => {
        this.counter.place(region);
        this.held.renew();
      },
      failed: (error) => this.sayWhy(error),
    });
    this.hand.listen();
    document.addEventListener("keydown", (event) => keyPressed(event, this, around), { signal, capture: true });
    signal.addEventListener("abort", () => this.counter.end());
  }

  /** Ask for what is on the slide, and follow what others do. Once; later calls do nothing. */
  begin(): void {
    if (!this.hasBegun) {
      this.hasBegun = true;
      void this.sync.start(this.signal);
    }
  }

  get inHand(): ToolChoice | null {
    return this.held.tool;
  }

  get sketch(): Sketch | null {
    return this.held.sketch;
  }

  get isDrawing(): boolean {
    return this.held.isDrawing;
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
    this.held.take(tool);
  }

  toggleAnnotating(): void {
    this.held.toggleAnnotating();
  }

  /** A button of a tool: take it, or put it away. */
  pressButton(tool: ToolChoice): void {
    this.held.pressButton(tool);
  }

  count(): void {
    this.held.count();
  }

  chooseCounted(number: number): boolean {
    return this.held.chooseCounted(number);
  }

  putAway(): void {
    this.held.putAway();
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
    } else if (this.held.tool) {
      this.held.putAway();
      return true;
    } else if (this.table.isOpen) {
      this.table.toggle();
    } else {
      return false;
    }
    this.refresh();
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
    return this.visits.find(words);
  }

  goTo(annotation: Annotation): void {
    this.visits.goTo(annotation);
  }

  importFile(file: File): void {
    this.visits.importFile(file);
  }

  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number): void {
    this.painter.draw(context, transform, ratio);
  }

  /** Whether a tool may be taken; if not, the reason is shown. */
  private mayTake(tool: ToolChoice): boolean {
    const may = this.mayAnnotate && (!this.isScratch || MEASURING_TOOLS.includes(tool));
    if (!may) {
      this.say(this.sync.summary ? "You may not annotate here." : this.sync.state);
    }
    return may;
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
    this.panel.show(this.held.tool, state, isSaved, this.mayAnnotate && !this.isScratch, mayExport, summary?.change ?? 0);
    this.countPanel.show(this.held.tool === "count", this.mayAnnotate, mayExport);
    this.bookmarks.show(this.mayAnnotate && !this.isScratch, mayExport);
    this.table.allowExport(mayExport);
    this.concerns.update(this.sync.outbox?.all().filter(({ refused }) => refused !== undefined) ?? [], this.ownChanges.list);
    if (summary) {
      this.followChange(summary.change);
    }
    this.around.toolChanged(this.held.tool);
    this.advice.show();
    this.around.redraw();
  }

  /** Show a message in the panel, and over the slide while a tool is in hand. */
  private say(text: string): void {
    this.panel.say(text);
    this.advice.say(text);
  }

  /** How the tool in hand works; null without one. */
  private get hint(): string | null {
    const { tool } = this.held;
    return tool === null ? null : tool === "select" ? SELECT_HINT : tool === "count" ? this.counter.hint() : HINTS[tool];
  }
}
