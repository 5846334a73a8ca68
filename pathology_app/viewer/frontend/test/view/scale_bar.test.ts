import assert from "node:assert/strict";
import { test } from "node:test";
import { lengthText, magnificationText, roundLength, umPerPxAt } from "../src/scale_bar";

test("a bar is the longest round length that fits", () => {
  assert.deepEqual([0.7, 1, 1.9, 2, 4.99, 5, 9.9, 37, 75, 1500].map(roundLength), [0.5, 1, 1, 2, 2, 5, 5, 20, 50, 1000]);
});

test("lengths are written in µm, and from one millimetre in mm", () => {
  assert.deepEqual([0.5, 20, 999, 1000, 2000].map(lengthText), ["0.5 µm", "20 µm", "999 µm", "1 mm", "2 mm"]);
});

test("at 40x a pixel is a quarter of a micrometre", () => {
  assert.equal(umPerPxAt(40), 0.25);
});

test("beyond what was scanned, pixels are drawn larger and nothing is magnified", () => {
  assert.deepEqual([1, 0.25, 0.125, 0.03125].map((um) => magnificationText(um, 0.25)), ["≈ 10×", "≈ 40×", "≈ 40×, enlarged 2×", "≈ 40×, enlarged 8×"]);
});
