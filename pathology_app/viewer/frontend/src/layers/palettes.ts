// Colour maps as a few stops with linear interpolation between them, identical to pipeline/palettes.py.

const STOPS: Record<string, string[]> = {
  Signal: ["0066ff", "00c8ff", "00ffb0", "c8ff00"],
  Viridis: ["440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"],
  Cividis: ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"],
  Turbo: ["30123b", "4145ab", "4675ed", "39a2fc", "1bcfd4", "24eca6", "61fc6c", "a4fc3b", "d1e834", "f3c63a", "fe9b2d", "f36315", "d93806", "b11901", "7a0402"],
  Green: ["00ff40", "00ff40"],
};

/** Colours of classes, in order: Okabe and Ito's, which colour-blind people can distinguish. */
export const CLASS_COLOURS = ["0072b2", "e69f00", "009e73", "cc79a7", "56b4e9", "d55e00", "f0e442", "000000"];

export const PALETTE_NAMES = Object.keys(STOPS);

type Rgb = [number, number, number];

function parse(hex: string): Rgb {
  const value = Number.parseInt(hex, 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** Colour of a probability from 0 to 1. */
export function colourOf(palette: string, probability: number): Rgb {
  const stops = STOPS[palette];
  const position = probability * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(position));
  const [from, to] = [parse(stops[index]), parse(stops[index + 1])];
  const share = position - index;
  return [0, 1, 2].map((channel) => Math.round(from[channel] + share * (to[channel] - from[channel]))) as Rgb;
}

/** Code of a probability in the overlay PNG; 0 is reserved for "not predicted". */
export function codeOf(probability: number): number {
  return 1 + Math.floor(probability * 254);
}

/** One RGBA word (little-endian) per code; codes below the threshold and "not predicted" are transparent. */
export function colourTable(palette: string, threshold: number): Uint32Array {
  const table = new Uint32Array(256);
  for (let code = codeOf(threshold); code < 256; code++) {
    const [red, green, blue] = colourOf(palette, (code - 1) / 254);
    table[code] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }
  return table;
}
