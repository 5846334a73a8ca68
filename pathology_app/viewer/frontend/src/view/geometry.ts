// Points, and the transform from slide to screen. Slide points are level-0 pixels, screen points CSS pixels of the stage.

export interface Point {
  x: number;
  y: number;
}

/** Placement of the slide on the screen: rotated by whole degrees, possibly mirrored, never sheared. */
export class Transform {
  /** Canvas convention: screen x = a x + c y + e, screen y = b x + d y + f. */
  constructor(
    readonly a: number,
    readonly b: number,
    readonly c: number,
    readonly d: number,
    readonly e: number,
    readonly f: number,
  ) {}

  /** From the screen positions of three slide points: the top left corner, `side` px to its right, and `side` px below it. */
  static through(corner: Point, right: Point, down: Point, side: number): Transform {
    const along = (to: Point): [number, number] => [(to.x - corner.x) / side, (to.y - corner.y) / side];
    return new Transform(...along(right), ...along(down), corner.x, corner.y);
  }

  /** Screen pixels per level-0 pixel. */
  get scale(): number {
    return Math.hypot(this.a, this.b);
  }

  toScreen({ x, y }: Point): Point {
    return { x: this.a * x + this.c * y + this.e, y: this.b * x + this.d * y + this.f };
  }

  toSlide({ x, y }: Point): Point {
    const [right, down] = [x - this.e, y - this.f];
    const determinant = this.a * this.d - this.b * this.c;
    return { x: (this.d * right - this.c * down) / determinant, y: (this.a * down - this.b * right) / determinant };
  }

  /** Make a context draw in level-0 pixels; `ratio` is device pixels per CSS pixel. */
  apply(context: CanvasRenderingContext2D, ratio: number): void {
    context.setTransform(ratio * this.a, ratio * this.b, ratio * this.c, ratio * this.d, ratio * this.e, ratio * this.f);
  }
}

export function distance(from: Point, to: Point): number {
  return Math.hypot(to.x - from.x, to.y - from.y);
}

/** Length of the line through the points. */
export function lengthOf(points: Point[]): number {
  return points.slice(1).reduce((sum, point, index) => sum + distance(points[index]!, point), 0);
}

/** Area of a polygon of either orientation. */
export function areaOf(points: Point[]): number {
  const twice = points.reduce((sum, { x, y }, index) => {
    const next = points[(index + 1) % points.length]!;
    return sum + x * next.y - next.x * y;
  }, 0);
  return Math.abs(twice) / 2;
}

/** Bounding box of the points: left, top, right, bottom. */
export function boundsOf(points: Point[]): [number, number, number, number] {
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}
