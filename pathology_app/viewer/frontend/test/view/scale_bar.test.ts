import assert from "node:assert/strict";
import { test } from "node:test";
import { lengthText, magnificationText, roundLength, umPerPxAt } from "../../src/view/scale_bar";

test("the scale bar is the longest round length that fits", () => {
  assert.deepEqual([0.7, 1, 1.9, 2, 4.99, 5, 9.9, 37, 75, 1500].map(roundLength), [0.5, 1, 1, 2, 2, 5, 5, 20, 50, 1000]);
});

test("lengths are written in µm, and in mm from one millimetre on", () => {
  assert.deepEqual([0.5, 20, 999, 1000, 2000].map(lengthText), ["0.5 µm", "20 µm", "999 µm", "1 mm", "2 mm"]);
});

test("at 40x a pixel is a quarter of a micrometre", () => {
  assert.equal(umPerPxAt(40), 0.25);
});

test("beyond the resolution of the scan, pixels are enlarged and the magnification does not increase", () => {
  assert.deepEqual([1, 0.25, 0.125, 0.03125].map((um) => magnificationText(um, 0.25)), ["≈ 10×", "≈ 40×", "≈ 40×, enlarged 2×", "≈ 40×, enlarged 8×"]);
});
