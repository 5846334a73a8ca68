// The part of a slide on the screen, and the pointer's position on it.
import type { Point } from "../view/geometry";
import type { Navigation } from "../view/navigation";
import type { Look } from "../review/coverage_map";
import type { Slide } from "../types";

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

  look(): Look {
    const transform = this.navigation.transform();
    const { clientWidth: width, clientHeight: height } = this.stage;
    const [first, second, third, fourth] = [[0, 0], [width, 0], [width, height], [0, height]].map(([x, y]) =>
      transform.toSlide({ x: x!, y: y! }),
    );
    return { corners: [first!, second!, third!, fourth!], um_per_px: this.slide.mpp0 / transform.scale, seconds: 0 };
  }

  isOnScreen(at: Point): boolean {
    const { x, y } = this.navigation.transform().toScreen(at);
    return x >= 0 && y >= 0 && x <= this.stage.clientWidth && y <= this.stage.clientHeight;
  }

  isInside({ x, y }: Point): boolean {
    const { width_px, height_px } = this.slide.levels[0]!;
    return x >= 0 && y >= 0 && x < width_px && y < height_px;
  }
}
