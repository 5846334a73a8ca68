// A tool takes clicks on the slide and draws over it.
import type { Point, Transform } from "../view/geometry";

export interface Drawing {
  context: CanvasRenderingContext2D;
  transform: Transform;
  mpp0: number;
}

export interface Tool {
  readonly name: string;
  /** Short hint on what to do next. */
  hint(): string;
  /**
   * A click, or Enter at the centre of the screen; level-0 pixels.
   * @param near_px0 largest distance between two presses that count as the same point.
   */
  press(at: Point, near_px0: number): void;
  /** The pointer; null when it is not over the slide. */
  hover(at: Point | null): void;
  /** Enter twice, or a double click: complete the current shape. */
  finish(): void;
  /** Undo the last step; false if there is none. */
  undo(): boolean;
  clear(): void;
  draw(drawing: Drawing): void;
}
