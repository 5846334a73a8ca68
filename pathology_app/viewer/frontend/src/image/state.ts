// How a slide's picture is shown: its colours, brightness, contrast and gamma, and what the link says of them.
import { isStandard, STANDARD_TONE, type Tone } from "./colour";

export interface ImageState extends Tone {
  /** Without the correction by the scanner's profile. */
  isScanned: boolean;
}

export const STANDARD_IMAGE: Readonly<ImageState> = { ...STANDARD_TONE, isScanned: false };

/** What each value of a tone may be: lowest and highest. */
export const RANGES: Readonly<Record<keyof Tone, readonly [number, number]>> = {
  brightness: [-0.5, 0.5],
  contrast: [0.5, 2],
  gamma: [0.5, 2],
};
const SCANNED = "scanned";

/** "brightness,contrast,gamma", and ",scanned" for colours as scanned; nothing where all is standard. */
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

/** What differs from the slide's own picture, in words; "" where nothing does. */
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
