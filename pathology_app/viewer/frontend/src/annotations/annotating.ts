// Interfaces between the parts of annotating.
import type OpenSeadragon from "openseadragon";
import type { Point, Transform } from "../view/geometry";
import type { DrawingName, Sketch } from "./drawing/tools";
import type { Editor } from "./editor";
import type { Model } from "./storage/model";

export type ToolChoice = "select" | DrawingName;

/** Tools of people who may not save annotations: what they measure stays in their browser. */
export const MEASURING_TOOLS: readonly ToolChoice[] = ["select", "ruler", "area", "count"];

/** The viewer, as annotations need it. */
export interface Surroundings {
  osd: OpenSeadragon.Viewer;
  stage: HTMLElement;
  slideId: string;
  width_px0: number;
  height_px0: number;
  mpp0: number;
  /** Whether keys are for this slide: of several side by side, one has them. */
  isActive(): boolean;
  transform(): Transform;
  /** Position of a pointer event on the slide. */
  slidePoint(event: MouseEvent): Point;
  middle(): Point;
  showBox(left_px0: number, top_px0: number, width_px0: number, height_px0: number): void;
  panBy(right_px: number, down_px: number): void;
  redraw(): void;
  /** Show the hint of the active tool. */
  advise(text: string): void;
  /** Another tool was taken, or the tool was put away. */
  toolChanged(tool: ToolChoice | null): void;
  openPanel(title: string): void;
  /** Parameters of a link that shows what is on the screen now. */
  view(): string;
  /** Show a view that `view` returned. */
  showView(view: string): void;
}

/** Annotations, as the mouse and key handlers need them. */
export interface Annotating {
  readonly model: Model;
  readonly editor: Editor;
  readonly panel: { focusClass(): void; focusNote(): void };
  readonly sketch: Sketch | null;
  readonly inHand: ToolChoice | null;
  /** Whether a drawing tool is in hand, rather than one that measures or counts. */
  readonly isDrawing: boolean;
  /** Take a tool; one that is in hand already stays. */
  take(tool: ToolChoice): void;
  /** The key or button that starts and stops annotating. */
  toggleAnnotating(): void;
  /** The key of the counting tool: take it, or begin another count. */
  count(): void;
  /** Choose the class to count by its number. False if no count is under way. */
  chooseCounted(number: number): boolean;
  bookmark(): void;
  openTable(): void;
  toggleShown(): void;
  join(): void;
  undo(): void;
  redo(): void;
}
