// The part of a slide on the screen, and the pointer's position on it.
import type { Point } from "../view/geometry";
import type { Navigation } from "../view/navigation";
import { type Look, rounded } from "../review/coverage_map";
import type { Slide } from "../types";

/** Above 1 where the browser is zoomed out so far that a device pixel is wider than a CSS pixel. */
export function cssPxPerScreenPx(): number {
  return Math.max(1, 1 / window.devicePixelRatio);
}

export class Sight {
  constructor(
    private readonly navigation: Navigation,
    private readonly stage: HTMLElement,
    private readonly slide: Slide,
  ) {}

  /** Centre of the screen, in level-0 pixels. */
  middle(): Point {
    return this.navigation.transform().toSlide({ x: this.stage.clientWidth / 2, y: this.stage.clientHeight / 2 });
  }

  /** Position of a pointer, in level-0 pixels. */
  pointOf(event: MouseEvent): Point {
    const { left, top } = this.stage.getBoundingClientRect();
    return this.navigation.transform().toSlide({ x: event.clientX - left - this.stage.clientLeft, y: event.clientY - top - this.stage.clientTop });
  }

  /**
   * The view at this moment.
   *
   * Its screen pixel is the CSS pixel, like that of the scale bar: however many device pixels a sharper screen draws it
   * with, it looks as large. Where the browser is zoomed out, a device pixel is wider than a CSS pixel, and counts.
   */
  look(): Look {
    const transform = this.navigation.transform();
    const { clientWidth: width, clientHeight: height } = this.stage;
    const [first, second, third, fourth] = [[0, 0], [width, 0], [width, height], [0, height]].map(([x, y]) =>
      transform.toSlide({ x: x!, y: y! }),
    );
    const um_per_px = (this.slide.mpp0 / transform.scale) * cssPxPerScreenPx();
    return rounded({ corners: [first!, second!, third!, fourth!], um_per_px, seconds: 0, rested_s: 0 });
  }

  isInside({ x, y }: Point): boolean {
    const { width_px, height_px } = this.slide.levels[0]!;
    return x >= 0 && y >= 0 && x < width_px && y < height_px;
  }
}
