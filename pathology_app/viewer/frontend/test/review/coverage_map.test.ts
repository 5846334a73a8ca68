import assert from "node:assert/strict";
import { test } from "node:test";
import {
  cellsInView,
  codeOf,
  CoverageMap,
  hasRested,
  isFineEnough,
  isInField,
  isSameView,
  type Look,
  lookBody,
  Looks,
  Rest,
  rounded,
} from "../../src/review/coverage_map";

const grid = { cell_px0: 256, columns: 8, rows: 6 };
const rule = { magnification: 10, seconds: 1, field_px: 600 };
const ALL = { ...rule, field_px: 1e6 };

function look(left: number, top: number, right: number, bottom: number, um_per_px = 1, seconds = 0.25, rested_s = 1): Look {
  const corners: Look["corners"] = [{ x: left, y: top }, { x: right, y: top }, { x: right, y: bottom }, { x: left, y: bottom }];
  return { corners, um_per_px, seconds, rested_s };
}

/** A screen of so many pixels around a point, 0.5 µm per level-0 pixel. */
function screen(x: number, y: number, width: number, height: number, um_per_px: number, degrees = 0): Look {
  const [cos, sin] = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  const at = (right: number, down: number): { x: number; y: number } => {
    const [across, along] = [(right * width * um_per_px) / 2 / 0.5, (down * height * um_per_px) / 2 / 0.5];
    return { x: x + cos * across - sin * along, y: y + sin * across + cos * along };
  };
  return rounded({ corners: [at(-1, -1), at(1, -1), at(1, 1), at(-1, 1)], um_per_px, seconds: 0.25, rested_s: 1.5 });
}

test("magnifications have the same byte codes as on the server", () => {
  assert.deepEqual([10, 5, 1, 0.25].map(codeOf), [100, 112, 140, 164]);
  assert.deepEqual([1e9, 1e-9].map(codeOf), [1, 255]);
});

test("cells with their centre on the screen count at any rotation, and so does the cell at its centre", () => {
  assert.deepEqual(cellsInView(look(0, 0, 512, 256), ALL, grid, 0.5), [0, 1]);
  const diamond: Look = { ...look(0, 0, 1, 1), corners: [{ x: 1024, y: 0 }, { x: 2048, y: 768 }, { x: 1024, y: 1536 }, { x: 0, y: 768 }] };
  const inside = cellsInView(diamond, ALL, grid, 0.5);
  diamond.corners.reverse();
  assert.deepEqual(cellsInView(diamond, ALL, grid, 0.5), inside);
  assert.ok(inside.includes(4) && inside.includes(28) && !inside.includes(0));
  assert.deepEqual(cellsInView(look(260, 260, 280, 280), ALL, grid, 0.5), [9]);
  assert.deepEqual(cellsInView(look(-9e6, -9e6, -8e6, -8e6), ALL, grid, 0.5), []);
});

test("the same path covers the same cells on a small and on a large screen, at any rotation", () => {
  const path = [[700, 500, 1], [1010, 777, 0.5], [1400, 900, 0.25], [333, 1111, 2]] as const;
  const seen = [[1040, 660, 0], [3500, 1990, 0], [760, 860, 90], [2400, 1300, 37]].map(([width, height, degrees]) => {
    const map = new CoverageMap(grid, rule, new Uint8Array(48), null);
    path.forEach(([x, y, um_per_px]) => map.add(screen(x, y, width!, height!, um_per_px, degrees), 0.5));
    return [...map.finest];
  });
  assert.ok(seen[0]!.some((code) => code > 0) && seen[0]!.some((code) => code === 0));
  seen.slice(1).forEach((other) => assert.deepEqual(other, seen[0]));
});

test("the field is a circle of the rule's diameter in screen pixels, cut off by the screen", () => {
  const wide = screen(1000, 600, 3000, 2000, 1);
  assert.ok(isInField({ x: 1599, y: 600 }, wide, rule, 0.5), "300 µm are 600 level-0 pixels");
  assert.ok(!isInField({ x: 1601, y: 600 }, wide, rule, 0.5));
  assert.ok(!isInField({ x: 1430, y: 1030 }, wide, rule, 0.5), "a corner of the circle's square");
  assert.ok(!isInField({ x: 1000, y: 900 }, screen(1000, 600, 3000, 200, 1), rule, 0.5), "below a low screen");
});

test("an area counts after the rule's time at rest, and a hotspot also needs the rule's magnification", () => {
  const map = new CoverageMap(grid, rule, new Uint8Array(48), null);
  assert.equal(map.add(look(0, 0, 512, 256, 1, 0.25, 0.99), 0.5), false);
  assert.equal(map.add(look(0, 0, 512, 256, 1, 0.25, 1), 0.5), true);
  assert.deepEqual([0.5, 1.5].map((rested_s) => hasRested(look(0, 0, 1, 1, 1, 0, rested_s), rule)), [false, true]);
  assert.deepEqual([0.5, 1, 1.2, 2].map((um_per_px) => isFineEnough(look(0, 0, 1, 1, um_per_px), rule, 0.5)), [true, true, false, false]);
  assert.equal(isFineEnough(look(0, 0, 1, 1, 0.5), rule, 2), false, "scanned at 5x");
});

test("the time at rest begins again after each movement, and many small ones are a movement", () => {
  const rest = new Rest();
  const ticks = [look(0, 0, 9, 9), look(0, 0, 9, 9), look(0.4, 0, 9.4, 9), null, look(0, 0, 9, 9), look(0, 0, 9, 9), look(0.8, 0, 9.8, 9)];
  const rested = ticks.map((view) => rest.tick(view, 0.25)?.rested_s ?? null);
  assert.deepEqual(rested, [null, 0.25, 0.5, null, null, 0.25, null]);
  assert.equal(new Rest().tick(look(0, 0, 9, 9, 1, 0, 7), 0.25), null, "time that a view brings along does not count");
});

test("the finest magnification is kept, and enlargement beyond the scan adds nothing", () => {
  const map = new CoverageMap(grid, ALL, new Uint8Array(48), null);
  assert.equal(map.add(look(0, 0, 512, 256, 0.5), 0.5), true);
  assert.equal(map.add(look(0, 0, 512, 256, 2), 0.5), false);
  assert.equal(map.add(look(0, 0, 256, 256, 0.1), 0.5), false);
  assert.deepEqual([...map.finest.slice(0, 3)], [152, 152, 0]);
});

test("the share is that of the tissue, or of the slide if its tissue is not known", () => {
  const tissue = new Uint8Array(48).fill(1, 0, 4);
  const map = new CoverageMap(grid, rule, new Uint8Array(48), tissue);
  map.add(look(0, 0, 256, 256, 1), 0.25);
  assert.equal(map.shareSeen(10), 0.25);
  assert.equal(map.shareSeen(20), 0);
  assert.equal(map.isUnseen(40, 10), false, "glass");
  assert.equal(new CoverageMap(grid, rule, map.finest, null).shareSeen(10), 1 / 48);
  assert.equal(new CoverageMap(grid, rule, map.finest, new Uint8Array(48)).shareSeen(10), null);
});

test("looks of one rest are merged, those of another are not, and unsent ones go first", () => {
  const looks = new Looks();
  looks.add(look(0, 0, 512, 256, 1, 0.25, 0.25));
  looks.add(look(0.2, 0, 512, 256.1, 1, 0.25, 0.5));
  looks.add(look(0, 0, 512, 256, 1, 0.25, 0.25));
  assert.equal(isSameView(look(0, 0, 512, 256), look(0, 0, 512, 256, 1.1)), false);
  const [first] = looks.take(1);
  assert.deepEqual([first!.seconds, first!.rested_s], [0.5, 0.5]);
  looks.putBack([first!]);
  assert.deepEqual(looks.take(9).map(({ seconds }) => seconds), [0.5, 0.25]);
  assert.ok(looks.isEmpty);
});

test("numbers are rounded before they are drawn, so that the server stores the same cells", () => {
  const view = rounded(look(0.123456, 0, 512.6, 256, 0.12345678, 0.257, 1.2345678));
  assert.deepEqual(lookBody(view), {
    corners: [[0.12, 0], [512.6, 0], [512.6, 256], [0.12, 256]],
    um_per_px: 0.123457,
    seconds: 0.26,
    rested_s: 1.234567,
  });
  assert.equal((lookBody({ ...view, rested_s: 0.257 }) as Look).rested_s, 0.26, "never below the look's own time");
});
