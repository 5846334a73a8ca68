// Areas of a slide viewed: the finest magnification per cell. Pure arithmetic, the same as in
// pipeline/review/judging/coverage.py, so that the browser draws what the server stores.
import type { Point } from "../view/geometry";

export interface CoverageGrid {
  cell_px0: number;
  columns: number;
  rows: number;
}

/** A view of the slide and the time that it was on the screen. */
export interface Look {
  /** Corners of the screen in level-0 pixels, in order around it. */
  corners: [Point, Point, Point, Point];
  um_per_px: number;
  seconds: number;
}

const UM_PER_PX_AT_1X = 10;
const CODE_AT_1X = 100;
const CODES_PER_OCTAVE = 12;

/** Magnification as one byte, 1 to 255; 0 is "never on the screen". */
export function codeOf(um_per_px: number): number {
  const octaves = Math.log2(UM_PER_PX_AT_1X / um_per_px);
  return Math.min(255, Math.max(1, Math.floor(CODE_AT_1X + CODES_PER_OCTAVE * octaves + 0.5)));
}

/** Cells whose centre lies inside a convex polygon, and the cell at its centre. */
export function cellsInside(corners: Point[], { cell_px0, columns, rows }: CoverageGrid): number[] {
  const points = corners.map(({ x, y }) => ({ x: x / cell_px0, y: y / cell_px0 }));
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const within = (value: number, most: number): number => Math.min(most, Math.max(0, value));
  const [left, right] = [within(Math.floor(Math.min(...xs)), columns), within(Math.ceil(Math.max(...xs)), columns)];
  const [top, bottom] = [within(Math.floor(Math.min(...ys)), rows), within(Math.ceil(Math.max(...ys)), rows)];
  const cells: number[] = [];
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      if (isInside(points, column + 0.5, row + 0.5)) {
        cells.push(row * columns + column);
      }
    }
  }
  const mean = (values: number[]): number => Math.floor(values.reduce((sum, value) => sum + value, 0) / values.length);
  const [column, row] = [mean(xs), mean(ys)];
  const middle = row * columns + column;
  if (column >= 0 && column < columns && row >= 0 && row < rows && !cells.includes(middle)) {
    cells.push(middle);
  }
  return cells;
}

/** Works for either orientation of the corners. */
function isInside(points: Point[], x: number, y: number): boolean {
  const sides = points.map((from, index) => {
    const to = points[(index + 1) % points.length]!;
    return (to.x - from.x) * (y - from.y) - (to.y - from.y) * (x - from.x) >= 0;
  });
  return sides.every((side) => side) || sides.every((side) => !side);
}

export class CoverageMap {
  constructor(
    readonly grid: CoverageGrid,
    readonly finest: Uint8Array,
    /** 1 for cells with tissue; null if the slide's tissue is not known. */
    readonly tissue: Uint8Array | null,
  ) {}

  /** @returns whether any cell was seen at a finer magnification than before. */
  add(look: Look, mpp0: number): boolean {
    const code = codeOf(Math.max(look.um_per_px, mpp0));
    let hasChanged = false;
    for (const cell of cellsInside(look.corners, this.grid)) {
      if (this.finest[cell]! < code) {
        this.finest[cell] = code;
        hasChanged = true;
      }
    }
    return hasChanged;
  }

  /** Whether a cell has tissue (if known) not yet viewed at a magnification or finer. */
  isUnseen(cell: number, magnification: number): boolean {
    return this.tissue?.[cell] !== 0 && this.finest[cell]! < codeOf(UM_PER_PX_AT_1X / magnification);
  }

  /** Share of the tissue (of the slide, if its tissue is not known) viewed at a magnification; null without tissue. */
  shareSeen(magnification: number): number | null {
    let [all, unseen] = [0, 0];
    for (let cell = 0; cell < this.finest.length; cell++) {
      if (this.tissue?.[cell] !== 0) {
        all++;
        unseen += this.isUnseen(cell, magnification) ? 1 : 0;
      }
    }
    return all ? (all - unseen) / all : null;
  }
}

/** Views waiting to be sent; consecutive equal views are merged and their times added. */
export class Looks {
  private looks: Look[] = [];

  get isEmpty(): boolean {
    return this.looks.length === 0;
  }

  add(look: Look): void {
    const last = this.looks.at(-1);
    if (last && isSameView(last, look)) {
      last.seconds += look.seconds;
    } else {
      this.looks.push({ ...look });
    }
  }

  /** Remove and return up to `most` of the oldest. */
  take(most: number): Look[] {
    return this.looks.splice(0, most);
  }

  putBack(looks: Look[]): void {
    this.looks.unshift(...looks);
  }
}

export function isSameView(one: Look, other: Look): boolean {
  const isNear = (a: number, b: number): boolean => Math.abs(a - b) < 0.5;
  return (
    Math.abs(one.um_per_px / other.um_per_px - 1) < 1e-3 &&
    one.corners.every(({ x, y }, index) => isNear(x, other.corners[index]!.x) && isNear(y, other.corners[index]!.y))
  );
}

/** Request format of the server, with rounded numbers. */
export function lookBody({ corners, um_per_px, seconds }: Look): object {
  return {
    corners: corners.map(({ x, y }) => [Math.round(x), Math.round(y)]),
    um_per_px: Number(um_per_px.toPrecision(4)),
    seconds: Math.round(seconds * 100) / 100,
  };
}
