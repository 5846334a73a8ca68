import assert from "node:assert/strict";
import { test } from "node:test";
import { factRows } from "../../src/calibration/screen";
import { GREY_STEPS, HALF_LIGHT, NEAR_BLACK, NEAR_WHITE, stains } from "../../src/calibration/values";

const rgb = (colour: string): number[] => [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
const GOOD = { ratio: 1, width: 1920, height: 1080, bits: 24, gamut: "sRGB or less", isHdr: false } as const;

test("greys run from black to white in equal steps", () => {
  const values = GREY_STEPS.map(({ colour }) => rgb(colour)[0]!);
  assert.deepEqual([values[0], values.at(-1)], [0, 255]);
  assert.ok(values.every((value, index) => index === 0 || value - values[index - 1]! === 15));
});

test("the fourth square differs from its background by five per cent", () => {
  assert.equal(Math.round((100 * rgb(NEAR_BLACK[3]!.colour)[0]!) / 255), 5);
  assert.equal(Math.round((100 * rgb(NEAR_WHITE[3]!.colour)[0]!) / 255), 95);
});

test("the sRGB square has half the luminance of white, the others less and more on an sRGB screen", () => {
  const light = (value: number): number => ((value / 255 + 0.055) / 1.055) ** 2.4;
  const [low, middle, high] = HALF_LIGHT.map(({ colour }) => light(rgb(colour)[0]!));
  assert.ok(Math.abs(middle! - 0.5) < 0.005);
  assert.ok(low! < 0.45 && high! > 0.53);
});

test("a stronger stain is darker in every channel, and every stain has its own hue", () => {
  for (const { patches } of stains()) {
    const colours = patches.map(({ colour }) => rgb(colour));
    assert.ok(colours.every((colour, index) => index === 0 || colour.every((value, channel) => value < colours[index - 1]![channel]!)));
  }
  const [haematoxylin, eosin, dab] = stains().map(({ patches }) => rgb(patches[3]!.colour));
  assert.ok(haematoxylin![2]! > haematoxylin![0]!);
  assert.ok(eosin![0]! > eosin![2]! && eosin![2]! > eosin![1]!);
  assert.ok(dab![0]! > dab![1]! && dab![1]! > dab![2]!);
});

test("a suitable screen gets no advice, and every fault gets its own", () => {
  assert.ok(factRows(GOOD).every(([, , advice]) => advice === ""));
  for (const amiss of [{ ratio: 1.1 }, { width: 1366, height: 768 }, { bits: 16 }, { gamut: "P3" as const }, { isHdr: true }]) {
    assert.equal(factRows({ ...GOOD, ...amiss }).filter(([, , advice]) => advice !== "").length, 1, JSON.stringify(amiss));
  }
});
