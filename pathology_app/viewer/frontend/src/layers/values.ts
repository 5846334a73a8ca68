// Values of a layer as text: shares from 0 to 1, or attention in multiples of its average.
import { shareText } from "./style";

/** What a layer's share of 1 stands for. */
export interface Scale {
  /** The value at the end of the colour range. */
  limit: number;
  /** "" for shares. */
  unit: string;
}

/** Half of the distance between two values that the cells can hold (cells.ts). */
const HALF_STEP = 0.5 / 254;

/** The value under the pointer: "0.93", "2.4 × average"; "≥ 9.3 × average" beyond the colour range. */
export function valueText(share: number, { limit, unit }: Scale): string {
  if (!unit) {
    return share.toFixed(2);
  }
  return share < 1 ? `${((share + HALF_STEP) * limit).toFixed(decimals(limit))} ${unit}` : `≥ ${limitText(limit)} ${unit}`;
}

/** A threshold: "0.5", "2.4 × average". */
export function thresholdText(share: number, { limit, unit }: Scale): string {
  return unit ? `${(share * limit).toFixed(1)} ${unit}` : shareText(share);
}

/** The values that are coloured: "from 0.5", "2.4–9.3 ×". */
export function rangeText(threshold: number, { limit, unit }: Scale): string {
  return unit ? `${(threshold * limit).toFixed(1)}–${limitText(limit)} ×` : `from ${shareText(threshold)}`;
}

/** Numbers below the ends and the middle of the colour bar. */
export function tickTexts({ limit, unit }: Scale): [string, string, string] {
  return unit ? ["0", limitText(limit / 2), `≥ ${limitText(limit)}`] : ["0", "0.5", "1"];
}

/** Decimals that a cell's value has: one, unless the range is so wide that its steps are larger. */
function decimals(limit: number): number {
  return limit / 254 <= 0.1 ? 1 : 0;
}

function limitText(limit: number): string {
  return String(Number(limit.toFixed(limit < 1000 ? 1 : 0)));
}
