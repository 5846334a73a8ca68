// Colour conversion of a slide for the screen: the scanner's profile as a table (pathology_app/tiles/colour_body.py), then
// brightness, contrast and gamma. Runs once per tile, and is independent of where the pixels come from.

export interface ColourTable {
  /** Channel values at the table's nodes, ascending from 0 to 255. */
  nodes: Uint8Array;
  /** sRGB at every node of red, green and blue, blue varying fastest: three bytes per node. */
  colours: Uint8Array;
}

export interface Tone {
  /** Added to every value, as a fraction of the full range: -0.5 to 0.5. */
  brightness: number;
  /** Stretches values away from mid-grey: 0.5 to 2. */
  contrast: number;
  /** Above 1 lightens everything between black and white: 0.5 to 2. */
  gamma: number;
}

/** Changes RGBA pixels in place. */
export type Converter = (pixels: Uint32Array) => void;

export const STANDARD_TONE: Readonly<Tone> = { brightness: 0, contrast: 1, gamma: 1 };

const COUNT_BYTES = 4;
const MAX_NODES = 256;
const VALUES = 256;
const OPAQUE = 0xff000000;
/** Red and blue packed into one number, so that one multiplication weights both. */
const RED_AND_BLUE = 0x00ff00ff;
const HALVES = 0x00800080;

/** Parse a response body. Throws if it is not a colour table. */
export function tableOf(body: ArrayBuffer): ColourTable {
  const count = body.byteLength >= COUNT_BYTES ? new DataView(body).getUint32(0, true) : Number.NaN;
  if (!(count >= 2 && count <= MAX_NODES && body.byteLength === COUNT_BYTES + count + 3 * count ** 3)) {
    throw new Error(`a colour table of ${body.byteLength} bytes is truncated`);
  }
  const nodes = new Uint8Array(body, COUNT_BYTES, count);
  const isRising = nodes.every((node, index) => index === 0 || node > nodes[index - 1]!);
  if (!isRising || nodes[0] !== 0 || nodes[count - 1] !== VALUES - 1) {
    throw new Error("a colour table's nodes do not ascend from 0 to 255");
  }
  return { nodes, colours: new Uint8Array(body, COUNT_BYTES + count) };
}

export function isStandard(tone: Tone): boolean {
  return tone.brightness === 0 && tone.contrast === 1 && tone.gamma === 1;
}

/** Output for each of the 256 input values of a channel. */
export function toneCurve({ brightness, contrast, gamma }: Tone): Uint8Array {
  return Uint8Array.from({ length: VALUES }, (_, value) => {
    const moved = (value / 255 - 0.5) * contrast + 0.5 + brightness;
    return Math.round(255 * Math.min(1, Math.max(0, moved)) ** (1 / gamma));
  });
}

/** Converter for brightness, contrast and gamma; null if they change nothing. */
export function toneConverter(tone: Tone): Converter | null {
  if (isStandard(tone)) {
    return null;
  }
  const [reds, greens, blues] = shifted(toneCurve(tone));
  return (pixels) => {
    for (let at = 0; at < pixels.length; at++) {
      const pixel = pixels[at]!;
      pixels[at] = OPAQUE | blues[(pixel >>> 16) & 255]! | greens[(pixel >>> 8) & 255]! | reds[pixel & 255]!;
    }
  };
}

/** The curve shifted to the bits of red, green and blue in a pixel. */
function shifted(curve: Uint8Array): Int32Array[] {
  return [0, 8, 16].map((bits) => Int32Array.from(curve, (value) => value << bits));
}

/**
 * Converter from the scanner's colours to sRGB by tetrahedral interpolation: it uses the four of a cell's eight corners that
 * enclose the colour, which keeps greys grey. Weights are in 256ths; values that depend on one channel only are precomputed.
 */
export function profileConverter({ nodes, colours }: ColourTable): Converter {
  const [redBlue, green] = packed(colours);
  const { cells, shares } = cellsOf(nodes);
  const [stepRed, stepGreen, stepBlue] = [nodes.length ** 2, nodes.length, 1];
  const [startsRed, startsGreen] = [cells.map((cell) => cell * stepRed), cells.map((cell) => cell * stepGreen)];
  const { firsts, seconds } = cornerOffsets(stepRed, stepGreen, stepBlue);
  const last = stepRed + stepGreen + stepBlue;
  return (pixels) => {
    let before = -1;
    let result = 0;
    for (let at = 0; at < pixels.length; at++) {
      const pixel = pixels[at]!;
      // Neighbouring pixels are often identical, on bare glass almost always.
      if (pixel !== before) {
        before = pixel;
        const r = pixel & 255;
        const g = (pixel >>> 8) & 255;
        const b = (pixel >>> 16) & 255;
        const shareRed = shares[r]!;
        const shareGreen = shares[g]!;
        const shareBlue = shares[b]!;
        const order = (shareRed >= shareGreen ? 4 : 0) | (shareGreen >= shareBlue ? 2 : 0) | (shareRed >= shareBlue ? 1 : 0);
        const most = Math.max(shareRed, shareGreen, shareBlue);
        const least = Math.min(shareRed, shareGreen, shareBlue);
        const middle = shareRed + shareGreen + shareBlue - most - least;
        const corner0 = startsRed[r]! + startsGreen[g]! + cells[b]!;
        const corner1 = corner0 + firsts[order]!;
        const corner2 = corner0 + seconds[order]!;
        const corner3 = corner0 + last;
        const weight0 = 256 - most;
        const weight1 = most - middle;
        const weight2 = middle - least;
        const outer =
          Math.imul(weight0, redBlue[corner0]!) + Math.imul(weight1, redBlue[corner1]!) +
          Math.imul(weight2, redBlue[corner2]!) + Math.imul(least, redBlue[corner3]!);
        const inner =
          Math.imul(weight0, green[corner0]!) + Math.imul(weight1, green[corner1]!) +
          Math.imul(weight2, green[corner2]!) + Math.imul(least, green[corner3]!);
        result = OPAQUE | (((outer + HALVES) >>> 8) & RED_AND_BLUE) | ((inner + 128) & 0xff00);
      }
      pixels[at] = result;
    }
  };
}

/**
 * The path from a cell's first corner to its last steps along the channels in order of decreasing share. Offsets of the two
 * corners on the way, indexed by the order of the shares (bit 4: red >= green, 2: green >= blue, 1: red >= blue).
 */
function cornerOffsets(red: number, green: number, blue: number): { firsts: Int32Array; seconds: Int32Array } {
  const [firsts, seconds] = [new Int32Array(8), new Int32Array(8)];
  for (const [order, first, second] of [
    [7, red, green],
    [5, red, blue],
    [4, blue, red],
    [3, green, red],
    [2, green, blue],
    [0, blue, green],
  ] as const) {
    [firsts[order], seconds[order]] = [first, first + second];
  }
  return { firsts, seconds };
}

/** Colours of the nodes: red and blue packed into one number, green in another. */
function packed(colours: Uint8Array): [Int32Array, Int32Array] {
  const count = colours.length / 3;
  const [redBlue, green] = [new Int32Array(count), new Int32Array(count)];
  for (let node = 0; node < count; node++) {
    redBlue[node] = colours[3 * node]! | (colours[3 * node + 2]! << 16);
    green[node] = colours[3 * node + 1]!;
  }
  return [redBlue, green];
}

/** For each channel value: the node below it, and its share of the distance to the next node, in 256ths. */
function cellsOf(nodes: Uint8Array): { cells: Int32Array; shares: Int32Array } {
  const [cells, shares] = [new Int32Array(VALUES), new Int32Array(VALUES)];
  for (let value = 0, cell = 0; value < VALUES; value++) {
    while (cell < nodes.length - 2 && nodes[cell + 1]! <= value) {
      cell++;
    }
    cells[value] = cell;
    shares[value] = Math.round((256 * (value - nodes[cell]!)) / (nodes[cell + 1]! - nodes[cell]!));
  }
  return { cells, shares };
}
