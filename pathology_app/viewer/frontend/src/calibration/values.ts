// What the patches of the calibration page show, in sRGB values 0 to 255.

export interface Patch {
  label: string;
  /** "#rrggbb". */
  colour: string;
}

/** Eighteen steps from black to white, as far apart for every pair of neighbours. */
export const GREY_STEPS: readonly Patch[] = Array.from({ length: 18 }, (_, step) => grey(15 * step));
/** On black and on white; the fourth of each differs from its ground by 5 %. */
export const NEAR_BLACK: readonly Patch[] = [3, 6, 9, 13, 20].map(grey);
export const NEAR_WHITE: readonly Patch[] = [252, 249, 246, 242, 235].map(grey);

/** Half of the light of white, as the eye mixes black and white stripes; sRGB's own curve and others. */
export const HALF_LIGHT: readonly Patch[] = [
  { label: "1.8", colour: grey(halfLight(1.8)).colour },
  { label: "2.2 (sRGB)", colour: grey(188).colour },
  { label: "2.6", colour: grey(halfLight(2.6)).colour },
];

/** How much of red, green and blue light one unit of a stain takes away (Ruifrok and Johnston 2001), as optical densities. */
const STAINS: readonly [string, readonly [number, number, number]][] = [
  ["Haematoxylin", [0.65, 0.7, 0.29]],
  ["Eosin", [0.07, 0.99, 0.11]],
  ["DAB", [0.27, 0.57, 0.78]],
];
const AMOUNTS = [0.15, 0.3, 0.6, 1, 1.5];

export interface Stain {
  name: string;
  /** From little of it to much. */
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
