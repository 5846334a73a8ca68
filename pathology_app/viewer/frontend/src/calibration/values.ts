// Colours of the patches of the calibration page, in sRGB values from 0 to 255.

export interface Patch {
  label: string;
  /** "#rrggbb". */
  colour: string;
}

/** Eighteen equal steps from black to white. */
export const GREY_STEPS: readonly Patch[] = Array.from({ length: 18 }, (_, step) => grey(15 * step));
/** Patches on black and on white; the fourth differs from its background by 5 %. */
export const NEAR_BLACK: readonly Patch[] = [3, 6, 9, 13, 20].map(grey);
export const NEAR_WHITE: readonly Patch[] = [252, 249, 246, 242, 235].map(grey);

/** Greys with half the luminance of white, as black and white stripes appear; for the sRGB curve and others. */
export const HALF_LIGHT: readonly Patch[] = [
  { label: "1.8", colour: grey(halfLight(1.8)).colour },
  { label: "2.2 (sRGB)", colour: grey(188).colour },
  { label: "2.6", colour: grey(halfLight(2.6)).colour },
];

/** Optical density in red, green and blue of one unit of a stain (Ruifrok and Johnston 2001). */
const STAINS: readonly [string, readonly [number, number, number]][] = [
  ["Haematoxylin", [0.65, 0.7, 0.29]],
  ["Eosin", [0.07, 0.99, 0.11]],
  ["DAB", [0.27, 0.57, 0.78]],
];
const AMOUNTS = [0.15, 0.3, 0.6, 1, 1.5];

export interface Stain {
  name: string;
  /** From weak to strong. */
  patches: Patch[];
}

export function stains(): Stain[] {
  return STAINS.map(([name, densities]) => ({
    name,
    patches: AMOUNTS.map((amount) => {
      const colour = hex(densities.map((density) => 255 * 10 ** (-density * amount)));
      return { label: colour, colour };
    }),
  }));
}

function grey(value: number): Patch {
  return { label: String(value), colour: hex([value, value, value]) };
}

function halfLight(gamma: number): number {
  return Math.round(255 * 0.5 ** (1 / gamma));
}

function hex(rgb: number[]): string {
  return `#${rgb.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;
}
