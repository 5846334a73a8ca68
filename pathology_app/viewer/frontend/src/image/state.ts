// Image settings (colours, brightness, contrast, gamma) and their form in the link.
import { isStandard, STANDARD_TONE, type Tone } from "./colour";

export interface ImageState extends Tone {
  /** Colours as scanned, without correction by the scanner's profile. */
  isScanned: boolean;
}

export const STANDARD_IMAGE: Readonly<ImageState> = { ...STANDARD_TONE, isScanned: false };

/** Lowest and highest value of each setting. */
export const RANGES: Readonly<Record<keyof Tone, readonly [number, number]>> = {
  brightness: [-0.5, 0.5],
  contrast: [0.5, 2],
  gamma: [0.5, 2],
};
const SCANNED = "scanned";

/** "brightness,contrast,gamma", then ",scanned" for colours as scanned; "" for the standard image. */
export function imageText(state: ImageState): string {
  const { brightness, contrast, gamma, isScanned } = state;
  if (isStandard(state) && !isScanned) {
    return "";
  }
  return [...[brightness, contrast, gamma].map((value) => value.toFixed(2)), ...(isScanned ? [SCANNED] : [])].join(",");
}

export function imageOf(text: string | null): ImageState | null {
  const [brightness, contrast, gamma, scanned, ...more] = (text ?? "").split(",");
  const values = { brightness, contrast, gamma };
  const numbers = Object.entries(RANGES).map(([name, [least, most]]) => {
    const part = values[name as keyof Tone];
    const value = part?.trim() ? Number(part) : Number.NaN;
    return value >= least && value <= most ? Math.round(100 * value) / 100 : Number.NaN;
  });
  const isImage = numbers.every((value) => !Number.isNaN(value)) && (scanned === undefined || scanned === SCANNED) && more.length === 0;
  return isImage ? { brightness: numbers[0]!, contrast: numbers[1]!, gamma: numbers[2]!, isScanned: scanned === SCANNED } : null;
}

/** Text that lists the adjustments; "" if there are none. */
export function changesOf(state: ImageState, hasProfile: boolean): string {
  const { brightness, contrast, gamma, isScanned } = state;
  const changes = [
    ...(brightness === 0 ? [] : [`brightness ${brightness > 0 ? "+" : "−"}${Math.abs(brightness).toFixed(2)}`]),
    ...(contrast === 1 ? [] : [`contrast ${contrast.toFixed(2)}`]),
    ...(gamma === 1 ? [] : [`gamma ${gamma.toFixed(2)}`]),
    ...(isScanned && hasProfile ? ["colours as scanned"] : []),
  ];
  return changes.length ? `Image changed: ${changes.join(", ")}.` : "";
}
