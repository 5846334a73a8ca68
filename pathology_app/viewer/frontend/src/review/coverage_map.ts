// Areas of a slide seen: the finest magnification per cell. Pure arithmetic, the same as in
// pipeline/review/judging/coverage.py, so that the browser draws what the server stores.
import type { Point } from "../view/geometry";

export interface CoverageGrid {
  cell_px0: number;
  columns: number;
  rows: number;
}

/** When an area or a hotspot counts as seen: stated by the protocol, the same on every screen. */
export interface SeenRule {
  magnification: number;
  /** Time without moving. */
  seconds: number;
  /** Diameter of the field around the middle of the view, in screen pixels. */
  field_px: number;
}

/** A view of the slide at rest. */
export interface Look {
  /** Corners of the screen in level-0 pixels, in order around it. */
  corners: [Point, Point, Point, Point];
  /** Of a screen pixel, by `Sight.look`. */
  um_per_px: number;
  /** Since the previous report of this rest. */
  seconds: number;
  /** Since the view came to rest. */
  rested_s: number;
}

const UM_PER_PX_AT_1X = 10;
const CODE_AT_1X = 100;
const CODES_PER_OCTAVE = 12;

/** Magnification as one byte, 1 to 255; 0 is "never seen". */
export function codeOf(um_per_px: number): number {
  const octaves = Math.log2(UM_PER_PX_AT_1X / um_per_px);
  return Math.min(255, Math.max(1, Math.floor(CODE_AT_1X + CODES_PER_OCTAVE * octaves + 0.5)));
}

/** Field of a look: a circle around the middle of the view, in level-0 pixels. */
export function fieldOf({ corners, um_per_px }: Look, { field_px }: SeenRule, mpp0: number): { middle: Point; radius_px0: number } {
  const mean = (axis: "x" | "y"): number => corners.reduce((sum, corner) => sum + corner[axis], 0) / corners.length;
  return { middle: { x: mean("x"), y: mean("y") }, radius_px0: (field_px * um_per_px) / 2 / mpp0 };
}

/** Whether a point is in a look's field, and on the screen. */
export function isInField(at: Point, look: Look, rule: SeenRule, mpp0: number): boolean {
  const { middle, radius_px0 } = fieldOf(look, rule, mpp0);
  return (at.x - middle.x) ** 2 + (at.y - middle.y) ** 2 <= radius_px0 ** 2 && isInside(look.corners, at.x, at.y);
}

/** Cells whose centre lies in a look's field, and the cell at the middle of the view. */
export function cellsInView(look: Look, rule: SeenRule, { cell_px0, columns, rows }: CoverageGrid, mpp0: number): number[] {
  const { middle, radius_px0 } = fieldOf(look, rule, mpp0);
  const within = (value: number, most: number): number => Math.min(most, Math.max(0, value));
  const from = (axis: "x" | "y", most: number): number =>
    within(Math.floor(Math.max(Math.min(...look.corners.map((at) => at[axis])), middle[axis] - radius_px0) / cell_px0), most);
  const to = (axis: "x" | "y", most: number): number =>
    within(Math.ceil(Math.min(Math.max(...look.corners.map((at) => at[axis])), middle[axis] + radius_px0) / cell_px0), most);
  const cells: number[] = [];
  for (let row = from("y", rows); row < to("y", rows); row++) {
    for (let column = from("x", columns); column < to("x", columns); column++) {
      if (isInField({ x: (column + 0.5) * cell_px0, y: (row + 0.5) * cell_px0 }, look, rule, mpp0)) {
        cells.push(row * columns + column);
      }
    }
  }
  const [column, row] = [Math.floor(middle.x / cell_px0), Math.floor(middle.y / cell_px0)];
  const at = row * columns + column;
  if (column >= 0 && column < columns && row >= 0 && row < rows && !cells.includes(at)) {
    cells.push(at);
  }
  return cells;
}

/** Whether a look has rested long enough. */
export function hasRested({ rested_s }: Look, { seconds }: SeenRule): boolean {
  return rested_s >= seconds;
}

/** Whether a look shows the slide at the rule's magnification; enlarging its pixels does not count. */
export function isFineEnough({ um_per_px }: Look, { magnification }: SeenRule, mpp0: number): boolean {
  return codeOf(Math.max(um_per_px, mpp0)) >= codeOf(UM_PER_PX_AT_1X / magnification);
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
    readonly rule: SeenRule,
    readonly finest: Uint8Array,
    /** 1 for cells with tissue; null if the slide's tissue is not known. */
    readonly tissue: Uint8Array | null,
  ) {}

  /** @returns whether any cell was seen at a finer magnification than before. */
  add(look: Look, mpp0: number): boolean {
    if (!hasRested(look, this.rule)) {
      return false;
    }
    const code = codeOf(Math.max(look.um_per_px, mpp0));
    let hasChanged = false;
    for (const cell of cellsInView(look, this.rule, this.grid, mpp0)) {
      if (this.finest[cell]! < code) {
        this.finest[cell] = code;
        hasChanged = true;
      }
    }
    return hasChanged;
  }

  /** Whether a cell has tissue (if known) not yet seen at a magnification or a higher one. */
  isUnseen(cell: number, magnification: number): boolean {
    return this.tissue?.[cell] !== 0 && this.finest[cell]! < codeOf(UM_PER_PX_AT_1X / magnification);
  }

  /** Share of the tissue (of the slide, if its tissue is not known) seen at a magnification; null without tissue. */
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

/** The view between two movements, observed tick by tick. */
export class Rest {
  private last: Look | null = null;

  /**
   * @param view null while it moves or is hidden. @param seconds since the previous tick.
   * @returns the look since then; null if the view moved meanwhile.
   */
  tick(view: Look | null, seconds: number): Look | null {
    const hasStayed = view !== null && this.last !== null && isSameView(this.last, view);
    // A view that has just come to rest has rested for no known time. It is compared with the view at the beginning of
    // the rest, so that many small movements are a movement.
    this.last = hasStayed ? { ...this.last!, seconds, rested_s: this.last!.rested_s + seconds } : view && { ...view, seconds: 0, rested_s: 0 };
    return hasStayed ? this.last : null;
  }
}

/** Looks waiting to be sent; those of one rest are merged and their times added. */
export class Looks {
  private looks: Look[] = [];

  get isEmpty(): boolean {
    return this.looks.length === 0;
  }

  add(look: Look): void {
    const last = this.looks.at(-1);
    if (last && isSameView(last, look) && look.rested_s > last.rested_s) {
      last.seconds += look.seconds;
      last.rested_s = look.rested_s;
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

/** A look in round numbers: those that are drawn here and stored on the server. */
export function rounded({ corners, um_per_px, seconds, rested_s }: Look): Look {
  const round = (value: number): number => Math.round(value * 100) / 100;
  const at = (corner: Point): Point => ({ x: round(corner.x), y: round(corner.y) });
  const [first, second, third, fourth] = corners;
  return { corners: [at(first), at(second), at(third), at(fourth)], um_per_px: Number(um_per_px.toPrecision(6)), seconds, rested_s };
}

/** Request format of the server. The time rested is at least the look's own, also after rounding. */
export function lookBody({ corners, um_per_px, seconds, rested_s }: Look): object {
  const round = (value: number): number => Math.round(value * 100) / 100;
  return {
    corners: corners.map(({ x, y }) => [x, y]),
    um_per_px,
    seconds: round(seconds),
    rested_s: Math.max(round(seconds), Math.floor(rested_s * 1e6) / 1e6),
  };
}
