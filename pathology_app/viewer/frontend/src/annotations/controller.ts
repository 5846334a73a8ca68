// Annotations on one slide: drawing, selecting, editing and saving. Most come as tiles; those in use are drawn individually.
import { toggle } from "../panel/elements";
import type { Point, Transform } from "../view/geometry";
import type { Annotating, Surroundings, ToolChoice } from "./annotating";
import { Api, Refused } from "./storage/api";
import { idAt } from "./choosing";
import { type DrawingName, HINTS, Sketch } from "./drawing/tools";
import { Editor } from "./editor";
import { Hand } from "./hand";
import { keyPressed } from "./keys";
import { Model } from "./storage/model";
import { drawCross, paintHandles, paintShape } from "./drawing/painting";
import { AnnotationPanel } from "./panel/content";
import { boundsOfGeometry } from "./drawing/shapes";
import { Sync } from "./storage/sync";
import { TileLayer } from "./drawing/tile_layer";
import { type Annotation, type Content, type Geometry, type Kind, totalOf } from "./types";

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
  /** For the toolbar. */
  readonly button = toggle("Annotate", "Draw and edit annotations (a)", () => this.take(this.tool ?? "select"));
  sketch: Sketch | null = null;
  private tool: ToolChoice | null = null;
  private readonly api: Api;
  private modelClasses: string[] = [];
  private isByKey = false;
  private reach_px = CLICK_PX;
  private advice = "";

  constructor(
    private readonly around: Surroundings,
    signal: AbortSignal,
  ) {
    const { slideId, width_px0, height_px0, redraw } = around;
    this.api = new Api(slideId);
    this.model = new Model(() => this.sync.outbox, () => this.relook());
    this.editor = new Editor(this.model, this.api, around, {
      changed: () => this.refresh(),
      edited: () => this.sync.kick(),
      say: (text) => this.panel.say(text),
    });
    this.sync = new Sync(this.api, this.model, slideId, storeOfBrowser(), {
      changed: () => this.refresh(),
      say: (text) => this.panel.say(text),
      manyChanged: () => this.askTilesAgain(),
      kept: (id, newId) => this.editor.renamed(id, newId),
    });
    this.panel = new AnnotationPanel(this, this.editor, this.model, around.mpp0, () => this.relook(), this.api.exportLink);
    const look = {
      colourOf: (name: string | null) => (this.panel.classes.isSeen(name) ? this.panel.classes.colour(name) : null),
      isHidden: (short: string) => this.model.isApart(short),
    };
    this.tiles = new TileLayer(this.api.tile, width_px0, height_px0, look, redraw);
    this.hand = new Hand(around, this);
    this.hand.listen();
    document.addEventListener("keydown", (event) => keyPressed(event, this, around), { signal, capture: true });
    const touched = ({ pointerType }: PointerEvent): void => {
      this.isByKey = false;
      this.reach_px = pointerType === "mouse" ? CLICK_PX : TOUCH_PX;
    };
    around.stage.addEventListener("pointerdown", touched, { signal, capture: true });
    void this.sync.start(signal);
  }

  get inHand(): ToolChoice | null {
    return this.tool;
  }

  get mayAnnotate(): boolean {
    return this.sync.outbox !== null && this.sync.summary?.may_annotate === true;
  }

  /** Set the classes of this slide's models, which the class menu also offers. */
  setModelClasses(names: string[]): void {
    this.modelClasses = names;
  }

  /** Take a tool, or put it away if it is active. */
  take(tool: ToolChoice): void {
    if (!this.mayAnnotate) {
      this.panel.say(this.sync.summary ? "You may not annotate here." : this.sync.state);
      return;
    }
    this.tool = this.tool === tool ? null : tool;
    this.sketch = this.tool === null || this.tool === "select" ? null : this.sketchOf(this.tool);
    if (this.tool) {
      this.around.took();
      this.around.openPanel();
      this.bringIntoView();
    }
    this.refresh();
  }

  /** Cancel the drawing, or else the selection, or else the tool. False if there was nothing to cancel. */
  layDown(): boolean {
    if (this.sketch?.hasBegun) {
      this.sketch.clear();
    } else if (this.editor.chosen.length) {
      this.editor.choose(null);
    } else if (this.tool) {
      [this.tool, this.sketch] = [null, null];
    } else {
      return false;
    }
    this.refresh();
    return true;
  }

  /** Put the tool away because another kind of tool was taken. */
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
    const near_px0 = this.reach_px / this.around.transform().scale;
    if (this.sketch) {
      this.sketch.press(at, near_px0);
      this.around.redraw();
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
    if (this.sketch) {
      this.sketch.hover(at);
      this.around.redraw();
    }
  }

  /** Backspace: remove the last point of the drawing, or else act as Delete. */
  backspace(): boolean {
    const isDone = this.sketch?.undo() ?? false;
    this.around.redraw();
    return isDone || this.delete();
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
    this.editor.choose(annotation.id);
    const [left, top, right, bottom] = boundsOfGeometry(annotation.geometry);
    const side = Math.max(SMALLEST_VIEW_PX0, 1.6 * Math.max(right - left, bottom - top));
    this.around.showBox((left + right - side) / 2, (top + bottom - side) / 2, side, side);
  }

  importFile(file: File): void {
    if (file.size > MOST_BYTES) {
      this.panel.say("Larger than 16 MiB: import it with gemslide annotations import.");
      return;
    }
    this.panel.say(`Importing ${file.name}…`);
    void this.api.import(file).then(
      ({ saved, unchanged, beside, dropped }) => {
        const parts = [`${saved} imported`, unchanged && `${unchanged} already present`, beside && `${beside} added beside versions changed here in the meantime`, dropped && `${dropped} could not be imported`];
        this.panel.say(`${parts.filter(Boolean).join(", ")}.`);
        this.sync.hurry();
      },
      (error: unknown) => this.sayWhy(error),
    );
  }

  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number): void {
    const { clientWidth, clientHeight } = this.around.stage;
    if (!this.panel.classes.isAllOff) {
      this.tiles.draw(context, transform, ratio, clientWidth, clientHeight);
    }
    for (const [id, content] of this.model.shown()) {
      this.drawOne(context, transform, id, content);
    }
    const last = this.editor.lastContent;
    if (last && this.tool) {
      paintHandles(context, this.hand.preview(this.editor.last!) ?? last.geometry, transform, this.editor.corner);
    }
    this.sketch?.draw(context, transform);
    if (this.tool && this.isByKey) {
      drawCross(context, clientWidth / 2, clientHeight / 2);
    }
  }

  /** Scroll the panel, and not the page, to this section. */
  private bringIntoView(): void {
    const section = this.panel.element.closest("details");
    if (section?.parentElement) {
      section.parentElement.scrollTop = section.offsetTop - section.parentElement.offsetTop;
    }
  }

  private drawOne(context: CanvasRenderingContext2D, transform: Transform, id: string, content: Content): void {
    const isChosen = this.editor.chosen.includes(id);
    if (isChosen || this.panel.classes.isSeen(content.class)) {
      paintShape(context, this.hand.preview(id) ?? content.geometry, transform, this.panel.classes.colour(content.class), isChosen);
    }
  }

  private sketchOf(tool: DrawingName): Sketch {
    return new Sketch(tool, (kind: Kind, geometry: Geometry) => {
      if (tool === "split") {
        void this.editor.split(geometry);
      } else {
        this.editor.add(kind, geometry);
      }
    });
  }

  private sayWhy(error: unknown): void {
    if (!(error instanceof Refused)) {
      throw error;
    }
    this.panel.say(error.message);
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
    this.button.setAttribute("aria-pressed", String(this.tool !== null));
    this.panel.show(this.tool, state, isSaved, this.mayAnnotate, summary?.may_export ?? false);
    const advice = this.tool === null ? "" : this.tool === "select" ? SELECT_HINT : HINTS[this.tool];
    if (advice !== this.advice) {
      this.advice = advice;
      this.around.advise(advice);
    }
    this.around.redraw();
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
