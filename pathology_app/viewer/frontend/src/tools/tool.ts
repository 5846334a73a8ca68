// What one does with a pointer on the slide besides moving it: a tool takes clicks and draws over the slide.
import type { Point, Transform } from "../geometry";

export interface Drawing {
  context: CanvasRenderingContext2D;
  transform: Transform;
  mpp0: number;
}

export interface Tool {
  readonly name: string;
  /** What to do next, in a few words. */
  hint(): string;
  /**
   * A click, or Enter with the middle of the screen as its place; level-0 pixels.
   * @param near_px0 how far apart two presses may be that are meant for one place.
   */
  press(at: Point, near_px0: number): void;
  /** The pointer, or the middle of the screen; null where neither is over the slide. */
  hover(at: Point | null): void;
  /** Enter twice, or a double click: what is begun is whole. */
  finish(): void;
  /** Take the last step back; false where there is none. */
  undo(): boolean;
  clear(): void;
  draw(drawing: Drawing): void;
}
