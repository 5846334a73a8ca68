// Dragging a new shape, a selected one, or one of its corners. The preview follows the pointer; the change is made at the end.
import type { Point } from "../view/geometry";
import type { Annotating, Surroundings } from "./annotating";
import { contains, type Corner, moved, nearestCorner, nearestMiddle, withCorner, withNewCorner } from "./drawing/shapes";
import type { Geometry } from "./types";

const [MOUSE_PX, TOUCH_PX] = [9, 22];

interface Drag {
  from: Point;
  to: Point;
  corner: Corner | null;
  /** Whether the corner is new, created by dragging the midpoint of a side. */
  isNew: boolean;
}

export class Hand {
  private drag: Drag | "sketch" | null = null;

  constructor(
    private readonly around: Surroundings,
    private readonly annotations: Annotating,
  ) {}

  listen(): void {
    const { osd } = this.around;
    const place = (event: { originalEvent: object }): Point => this.around.slidePoint(event.originalEvent as MouseEvent);
    osd.addHandler("canvas-press", (event) => this.begin(place(event), (event.originalEvent as PointerEvent).pointerType === "mouse" ? MOUSE_PX : TOUCH_PX));
    osd.addHandler("canvas-drag", (event) => {
      event.preventDefaultAction = this.move(place(event)) || event.preventDefaultAction;
    });
    osd.addHandler("canvas-drag-end", (event) => {
      event.preventDefaultAction = this.drag !== null || event.preventDefaultAction;
    });
    osd.addHandler("canvas-release", () => this.end());
  }

  /** The shape as it would be if the drag ended now; null if it is not being dragged. */
  preview(id: string): Geometry | null {
    const { editor } = this.annotations;
    const content = this.annotations.model.content(id);
    if (!this.drag || this.drag === "sketch" || !content || !editor.chosen.includes(id)) {
      return null;
    }
    const { corner, isNew, to } = this.drag;
    if (!corner) {
      return moved(content.geometry, this.displacement, this.around.width_px0, this.around.height_px0);
    }
    if (id !== editor.last) {
      return null;
    }
    return isNew ? withNewCorner(content.geometry, corner, to) : withCorner(content.geometry, corner, to);
  }

  private begin(at: Point, reach_px: number): void {
    this.drag = null;
    const { sketch, editor, inHand } = this.annotations;
    if (sketch?.takesDrags && !sketch.hasBegun) {
      this.drag = "sketch";
      sketch.dragFrom(at);
      return;
    }
    const content = editor.lastContent;
    if (inHand !== "select" || !content) {
      return;
    }
    const reach_px0 = reach_px / this.around.transform().scale;
    const corner = nearestCorner(content.geometry, at, reach_px0);
    const middle = corner ? null : nearestMiddle(content.geometry, at, reach_px0);
    if (corner || middle || contains(content.geometry, at, reach_px0)) {
      this.drag = { from: at, to: at, corner: corner ?? middle, isNew: !corner && middle !== null };
    }
  }

  /** @returns whether something is being dragged, so that the slide must not move. */
  private move(at: Point): boolean {
    if (this.drag === "sketch") {
      this.annotations.sketch?.dragTo(at, this.around.transform().scale);
    } else if (this.drag) {
      this.drag.to = at;
    }
    if (this.drag) {
      this.around.redraw();
    }
    return this.drag !== null;
  }

  private end(): void {
    const { drag } = this;
    const { scale } = this.around.transform();
    if (drag === "sketch") {
      const { sketch } = this.annotations;
      sketch?.dragEnd(scale);
    } else if (drag && Math.hypot(this.displacement.x, this.displacement.y) * scale > 2) {
      const { corner, isNew, to } = drag;
      const by = this.displacement;
      this.drag = null;
      if (!corner) {
        this.annotations.editor.moveBy(by);
      } else if (isNew) {
        this.annotations.editor.addCorner(corner, to);
      } else {
        this.annotations.editor.moveCorner(corner, to);
      }
    } else if (drag?.corner && !drag.isNew) {
      this.annotations.editor.corner = drag.corner;
    }
    this.drag = null;
    this.around.redraw();
  }

  private get displacement(): Point {
    const { from, to } = this.drag as Drag;
    return { x: to.x - from.x, y: to.y - from.y };
  }
}
