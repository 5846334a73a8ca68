import assert from "node:assert/strict";
import { test } from "node:test";
import { firstLook, levelFor, tilesIn } from "../../src/tiles/read_ahead";

const levels = [1, 2, 4].map((downsample) => ({ width_px: 5000 / downsample, height_px: 3000 / downsample, tile_px: 512, downsample }));

test("a slide is shown from the level nearest to the screen's resolution", () => {
  assert.deepEqual([4, 1, 0.71, 0.7, 0.36, 0.35, 0.01].map((scale) => levelFor(levels, scale)), [0, 0, 0, 1, 1, 2, 2]);
});

test("a rectangle's tiles are those that it intersects, and none outside the slide", () => {
  const names = (bounds: [number, number, number, number]): string => tilesIn(levels, 1, bounds).map(({ col, row }) => `${col}_${row}`).join(" ");
  assert.equal(names([0, 0, 1023, 1023]), "0_0");
  assert.equal(names([1000, 0, 1100, 1100]), "0_0 1_0 0_1 1_1");
  assert.equal(names([-5000, -5000, 10, 10]), "0_0");
  assert.equal(names([4900, 2900, 90000, 90000]), "4_2");
  assert.equal(names([6000, 0, 7000, 10]), "");
});

test("the first view is the whole slide, or the view in the link", () => {
  const whole = firstLook(levels, 0.5, null, 1000, 300);
  assert.deepEqual(whole, { scale: 0.1, bounds: [-2500, 0, 7500, 3000] });
  const view = { x_um: 500, y_um: 250, um_per_px: 1, degrees: 0, isMirrored: false };
  assert.deepEqual(firstLook(levels, 0.5, view, 1000, 300), { scale: 0.5, bounds: [0, 200, 2000, 800] });
  const [left, top, right, bottom] = firstLook(levels, 0.5, { ...view, degrees: 30 }, 400, 300).bounds;
  assert.deepEqual([left, top, right, bottom], [500, 0, 1500, 1000]);
});
