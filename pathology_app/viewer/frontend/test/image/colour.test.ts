import assert from "node:assert/strict";
import { test } from "node:test";
import { profileConverter, STANDARD_TONE, tableOf, toneConverter, toneCurve } from "../../src/image/colour";

const NODES = [0, 20, 130, 255];

/** A table over NODES that applies `of` to red, green and blue. */
function body(of: (rgb: number[]) => number[], nodes = NODES): ArrayBuffer {
  const colours = nodes.flatMap((red) => nodes.flatMap((green) => nodes.flatMap((blue) => of([red, green, blue]))));
  const bytes = new Uint8Array(4 + nodes.length + colours.length);
  new DataView(bytes.buffer).setUint32(0, nodes.length, true);
  bytes.set(nodes, 4);
  bytes.set(colours, 4 + nodes.length);
  return bytes.buffer;
}

/** Every seventh colour, opaque, and the corners. */
function manyColours(): Uint32Array {
  const steps = [...Array.from({ length: 37 }, (_, index) => 7 * index), 255];
  return Uint32Array.from(steps.flatMap((r) => steps.flatMap((g) => steps.map((b) => rgba([r, g, b])))));
}

function rgba([red, green, blue]: number[]): number {
  return (0xff000000 | (blue! << 16) | (green! << 8) | red!) >>> 0;
}

function rgb(pixel: number): number[] {
  return [pixel & 255, (pixel >>> 8) & 255, (pixel >>> 16) & 255];
}

test("an identity table changes no colour", () => {
  const before = manyColours();
  const after = before.slice();
  profileConverter(tableOf(body((colour) => colour)))(after);
  assert.deepEqual(after, before);
});

test("channels are not mixed up, and linear functions between nodes are exact", () => {
  const pixels = manyColours();
  profileConverter(tableOf(body(([r, g, b]) => [b!, 255 - r!, g!])))(pixels);
  manyColours().forEach((pixel, index) => {
    const [r, g, b] = rgb(pixel);
    assert.deepEqual(rgb(pixels[index]!), [b!, 255 - r!, g!]);
  });
});

test("greys stay grey between nodes, however non-linear the colours around them are", () => {
  const pixels = Uint32Array.from({ length: 256 }, (_, value) => rgba([value, value, value]));
  profileConverter(tableOf(body(([r, g, b]) => (r === g && g === b ? [r!, g!, b!] : [255 - r!, g! >> 1, b! >> 2]))))(pixels);
  pixels.forEach((pixel, value) => assert.deepEqual(rgb(pixel), [value, value, value]));
});

test("every pixel stays opaque", () => {
  const pixels = manyColours();
  profileConverter(tableOf(body(() => [0, 0, 0])))(pixels);
  assert.ok(pixels.every((pixel) => pixel === 0xff000000));
});

test("an invalid colour table is an error", () => {
  const whole = body((colour) => colour);
  for (const cut of [1, 3, whole.byteLength - 4, whole.byteLength]) {
    assert.throws(() => tableOf(whole.slice(0, whole.byteLength - cut)), /truncated/);
  }
  assert.throws(() => tableOf(new Uint8Array([255, 255, 255, 255, 0, 255]).buffer), /truncated/);
  for (const nodes of [[0, 130, 130, 255], [0, 200, 130, 255], [1, 2, 3, 255], [0, 1, 2, 254]]) {
    assert.throws(() => tableOf(body((colour) => colour, nodes)), /do not ascend/);
  }
});

test("the standard tone needs no converter, and every other curve is non-decreasing", () => {
  assert.equal(toneConverter({ ...STANDARD_TONE }), null);
  assert.deepEqual([...toneCurve(STANDARD_TONE)], Array.from({ length: 256 }, (_, value) => value));
  for (const brightness of [-0.5, 0, 0.5]) {
    for (const contrast of [0.5, 1, 2]) {
      for (const gamma of [0.5, 1, 2]) {
        const curve = toneCurve({ brightness, contrast, gamma });
        assert.ok(curve.every((value, index) => index === 0 || value >= curve[index - 1]!));
      }
    }
  }
});

test("brightness adds, contrast stretches from mid-grey, gamma lightens between black and white", () => {
  assert.deepEqual([0, 100, 230].map((value) => toneCurve({ ...STANDARD_TONE, brightness: 0.2 })[value]), [51, 151, 255]);
  assert.deepEqual([0, 100, 255].map((value) => toneCurve({ ...STANDARD_TONE, contrast: 2 })[value]), [0, 73, 255]);
  const lighter = toneCurve({ ...STANDARD_TONE, gamma: 2 });
  assert.deepEqual([lighter[0], lighter[64], lighter[255]], [0, 128, 255]);
});

test("a tone affects all channels equally", () => {
  const tone = { brightness: -0.1, contrast: 1.4, gamma: 1.2 };
  const curve = toneCurve(tone);
  const pixels = Uint32Array.of(rgba([10, 120, 240]), rgba([255, 0, 60]));
  toneConverter(tone)!(pixels);
  assert.deepEqual(Array.from(pixels, rgb), [[10, 120, 240], [255, 0, 60]].map((colour) => colour.map((value) => curve[value])));
});
