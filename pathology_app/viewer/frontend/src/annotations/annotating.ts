// Interfaces between the parts of annotating.
import type OpenSeadragon from "openseadragon";
import type { Point, Transform } from "../view/geometry";
import type { DrawingName, Sketch } from "./drawing/tools";
import type { Editor } from "./editor";
import type { Model } from "./storage/model";

export type ToolChoice = "select" | DrawingName;

/** The viewer, as annotations need it. */
export interface Surroundings {
  osd: OpenSeadragon.Viewer;
  stage: HTMLElement;
  slideId: string;
  width_px0: number;
  height_px0: number;
  mpp0: number;
  transform(): Transform;
  /** Position of a pointer event on the slide. */
  slidePoint(event: MouseEvent): Point;
  middle(): Point;
  showBox(left_px0: number, top_px0: number, width_px0: number, height_px0: number): void;
  panBy(right_px: number, down_px: number): void;
  redraw(): void;
  /** Show the hint of the active tool. */
  advise(text: string): void;
  /** An annotation tool was taken: put other tools away. */
  took(): void;
  openPanel(): void;
}

/** Annotations, as the mouse and key handlers need them. */
export interface Annotating {
  readonly model: Model;
  readonly editor: Editor;
  readonly panel: { focusClass(): void; focusNote(): void };
  readonly sketch: Sketch | null;
  readonly inHand: ToolChoice | null;
  take(tool: ToolChoice): void;
  toggleShown(): void;
  join(): void;
  undo(): void;
  redo(): void;
}
