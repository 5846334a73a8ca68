// A slide's colours on the screen: the scanner's profile as a table (pathology_app/tiles/colour_body.py), then brightness,
// contrast and gamma. Each is worked out once per tile; nothing here knows where pixels come from.

export interface ColourTable {
  /** Values of a channel at the table's nodes, rising from 0 to 255. */
  nodes: Uint8Array;
  /** sRGB at each node of red, green and blue, blue changing fastest: three bytes for each. */
  colours: Uint8Array;
}

export interface Tone {
  /** Added to every value, in shares of the whole range: -0.5 to 0.5. */
  brightness: number;
  /** Stretches values away from the middle grey: 0.5 to 2. */
  contrast: number;
  /** Above 1 lightens what is neither black nor white: 0.5 to 2. */
  gamma: number;
}

/** Changes RGBA pixels in place. */
export type Converter = (pixels: Uint32Array) => void;

export const STANDARD_TONE: Readonly<Tone> = { brightness: 0, contrast: 1, gamma: 1 };

const COUNT_BYTES = 4;
const MAX_NODES = 256;
const VALUES = 256;
const OPAQUE = 0xff000000;
/** Red and blue of two colours, side by side in one number: both are weighed by one multiplication. */
const RED_AND_BLUE = 0x00ff00ff;
const HALVES = 0x00800080;

/** The table in a body. Throws where the body is not one. */
export function tableOf(body: ArrayBuffer): ColourTable {
  const count = body.byteLength >= COUNT_BYTES ? new DataView(body).getUint32(0, true) : Number.NaN;
  if (!(count >= 2 && count <= MAX_NODES && body.byteLength === COUNT_BYTES + count + 3 * count ** 3)) {
    throw new Error(`a colour table of ${body.byteLength} bytes is cut short`);
  }
  const nodes = new Uint8Array(body, COUNT_BYTES, count);
  const isRising = nodes.every((node, index) => index === 0 || node > nodes[index - 1]!);
  if (!isRising || nodes[0] !== 0 || nodes[count - 1] !== VALUES - 1) {
    throw new Error("a colour table's nodes do not rise from 0 to 255");
  }
  return { nodes, colours: new Uint8Array(body, COUNT_BYTES + count) };
}

export function isStandard(tone: Tone): boolean {
  return tone.brightness === 0 && tone.contrast === 1 && tone.gamma === 1;
}

/** What becomes of each value of a channel. */
export function toneCurve({ brightness, contrast, gamma }: Tone): Uint8Array {
  return Uint8Array.from({ length: VALUES }, (_, value) => {
    const moved = (value / 255 - 0.5) * contrast + 0.5 + brightness;
    return Math.round(255 * Math.min(1, Math.max(0, moved)) ** (1 / gamma));
  });
}

/** Brightness, contrast and gamma; null where they change nothing. */
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

/** The curve at the places of red, green and blue in a pixel. */
function shifted(curve: Uint8Array): Int32Array[] {
  return [0, 8, 16].map((bits) => Int32Array.from(curve, (value) => value << bits));
}

/**
 * From the scanner's colours to the screen's, by tetrahedral interpolation: of a cell's eight corners those four count that
 * the colour lies between, which keeps greys grey. Weights are in 256ths; what depends on one channel alone is worked out
 * beforehand.
 */
export function profileConverter({ nodes, colours }: ColourTable): Converter {
  const [redBlue, green] = packed(colours);
  const { cells, shares } = cellsOf(nodes);
  const [stepRed, stepGreen, stepBlue] = [nodes.length ** 2, nodes.length, 1];
  const [startsRed, startsGreen] = [cells.map((cell) => cell * stepRed), cells.map((cell) => cell * stepGreen)];
  const { firsts, seconds } = waysThrough(stepRed, stepGreen, stepBlue);
  const last = stepRed + stepGreen + stepBlue;
  return (pixels) => {
    let before = -1;
    let made = 0;
    for (let at = 0; at < pixels.length; at++) {
      const pixel = pixels[at]!;
      // Neighbours are often the same, on glass nearly always.
      if (pixel !== before) {
        before = pixel;
        const r = pixel & 255;
        const g = (pixel >>> 8) & 255;
        const b = (pixel >>> 16) & 255;
        const ofRed = shares[r]!;
        const ofGreen = shares[g]!;
        const ofBlue = shares[b]!;
        const way = (ofRed >= ofGreen ? 4 : 0) | (ofGreen >= ofBlue ? 2 : 0) | (ofRed >= ofBlue ? 1 : 0);
        const most = Math.max(ofRed, ofGreen, ofBlue);
        const least = Math.min(ofRed, ofGreen, ofBlue);
        const middle = ofRed + ofGreen + ofBlue - most - least;
        const corner0 = startsRed[r]! + startsGreen[g]! + cells[b]!;
        const corner1 = corner0 + firsts[way]!;
        const corner2 = corner0 + seconds[way]!;
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
        made = OPAQUE | (((outer + HALVES) >>> 8) & RED_AND_BLUE) | ((inner + 128) & 0xff00);
      }
      pixels[at] = made;
    }
  };
}

/**
 * From a cell's first corner to its last one goes along the channels by falling share: the two corners between, by which
 * shares are at least as large as which (4: red as green, 2: green as blue, 1: red as blue).
 */
function waysThrough(red: number, green: number, blue: number): { firsts: Int32Array; seconds: Int32Array } {
  const [firsts, seconds] = [new Int32Array(8), new Int32Array(8)];
  for (const [way, first, second] of [
    [7, red, green],
    [5, red, blue],
    [4, blue, red],
    [3, green, red],
    [2, green, blue],
    [0, blue, green],
  ] as const) {
    [firsts[way], seconds[way]] = [first, first + second];
  }
  return { firsts, seconds };
}

/** The nodes' colours: red and blue in one number, green in another. */
function packed(colours: Uint8Array): [Int32Array, Int32Array] {
  const count = colours.length / 3;
  const [redBlue, green] = [new Int32Array(count), new Int32Array(count)];
  for (let node = 0; node < count; node++) {
    redBlue[node] = colours[3 * node]! | (colours[3 * node + 2]! << 16);
    green[node] = colours[3 * node + 1]!;
  }
  return [redBlue, green];
}

/** Of each value of a channel: the node before it, and how far it is to the next, in 256ths. */
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
