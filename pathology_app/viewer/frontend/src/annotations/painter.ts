// Draws the annotations on the slide: tiles, those known individually, the selection and the drawing in progress.
import type { Transform } from "../view/geometry";
import type { Surroundings, ToolChoice } from "./annotating";
import type { Counter } from "./counting/counter";
import { paintMeasured } from "./drawing/measured";
import { drawCross, paintHandles, paintShape } from "./drawing/painting";
import { labelOf } from "./drawing/sizes";
import type { TileLayer } from "./drawing/tile_layer";
import type { Sketch } from "./drawing/tools";
import type { Editor } from "./editor";
import type { ClassList } from "./panel/class_list";
import type { Model } from "./storage/model";
import { type Content, type Geometry, isDrawnApart } from "./types";

/** Of measurements and counts without a class. */
const MEASURED_COLOUR = "#00708f";

/** What is drawn. */
export interface Drawn {
  readonly model: Model;
  readonly editor: Editor;
  readonly panel: { readonly classes: ClassList };
  readonly tiles: TileLayer;
  readonly hand: { preview(id: string): Geometry | null };
  readonly counter: Counter;
  readonly sketch: Sketch | null;
  readonly inHand: ToolChoice | null;
  readonly pointing: { readonly isByKey: boolean };
}

export class Painter {
  constructor(
    private readonly around: Surroundings,
    private readonly annotations: Drawn,
  ) {}

  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number): void {
    const { panel, tiles, model, counter, editor, hand, sketch, inHand } = this.annotations;
    const { clientWidth, clientHeight } = this.around.stage;
    if (!panel.classes.isAllOff) {
      tiles.draw(context, transform, ratio, clientWidth, clientHeight);
    }
    for (const [id, content] of model.shown()) {
      this.drawOne(context, transform, id, content);
    }
    if (inHand === "count") {
      counter.draw(context, transform);
    }
    const last = editor.lastContent;
    if (last && last.kind !== "bookmark" && inHand && inHand !== "count") {
      paintHandles(context, hand.preview(editor.last!) ?? last.geometry, transform, editor.corner);
    }
    sketch?.draw(context, transform);
    if (inHand && this.annotations.pointing.isByKey) {
      drawCross(context, clientWidth / 2, clientHeight / 2);
    }
  }

  private drawOne(context: CanvasRenderingContext2D, transform: Transform, id: string, content: Content): void {
    const { editor, panel, hand, counter } = this.annotations;
    const isChosen = editor.chosen.includes(id);
    if (content.kind === "reply" || !(isChosen || panel.classes.isSeen(content.class))) {
      return;
    }
    const geometry = hand.preview(id) ?? content.geometry;
    const colour = panel.classes.colour(content.class);
    if (!isDrawnApart(content.kind)) {
      paintShape(context, geometry, transform, colour, isChosen);
      return;
    }
    const text = content.kind === "count" ? counter.labelOf(id) : labelOf({ ...content, geometry }, this.around.mpp0);
    const isStrong = isChosen || id === counter.activeId;
    paintMeasured(context, { kind: content.kind, geometry }, transform, content.class === null ? MEASURED_COLOUR : colour, isStrong, text);
  }
}
