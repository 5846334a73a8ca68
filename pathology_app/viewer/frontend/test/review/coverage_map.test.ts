import assert from "node:assert/strict";
import { test } from "node:test";
import { cellsInside, codeOf, CoverageMap, isSameView, type Look, lookBody, Looks } from "../../src/review/coverage_map";

const grid = { cell_px0: 256, columns: 8, rows: 6 };

function look(left: number, top: number, right: number, bottom: number, um_per_px = 1, seconds = 0.25): Look {
  const corners: Look["corners"] = [{ x: left, y: top }, { x: right, y: top }, { x: right, y: bottom }, { x: left, y: bottom }];
  return { corners, um_per_px, seconds };
}

test("magnifications have the same byte codes as on the server", () => {
  assert.deepEqual([10, 5, 1, 0.25].map(codeOf), [100, 112, 140, 164]);
  assert.deepEqual([1e9, 1e-9].map(codeOf), [1, 255]);
});

test("cells with their centre on the screen count at any rotation, and so does the cell at its centre", () => {
  assert.deepEqual(cellsInside(look(0, 0, 512, 256).corners, grid), [0, 1]);
  const diamond = [{ x: 1024, y: 0 }, { x: 2048, y: 768 }, { x: 1024, y: 1536 }, { x: 0, y: 768 }];
  const inside = cellsInside(diamond, grid);
  assert.deepEqual(cellsInside(diamond.reverse(), grid), inside);
  assert.ok(inside.includes(4) && inside.includes(28) && !inside.includes(0));
  assert.deepEqual(cellsInside(look(260, 260, 280, 280).corners, grid), [9]);
  assert.deepEqual(cellsInside(look(-9e6, -9e6, -8e6, -8e6).corners, grid), []);
});

test("the finest magnification is kept, and enlargement beyond the scan adds nothing", () => {
  const map = new CoverageMap(grid, new Uint8Array(48), null);
  assert.equal(map.add(look(0, 0, 512, 256, 0.5), 0.5), true);
  assert.equal(map.add(look(0, 0, 512, 256, 2), 0.5), false);
  assert.equal(map.add(look(0, 0, 256, 256, 0.1), 0.5), false);
  assert.deepEqual([...map.finest.slice(0, 3)], [152, 152, 0]);
});

test("the share is that of the tissue, or of the slide if its tissue is not known", () => {
  const tissue = new Uint8Array(48).fill(1, 0, 4);
  const map = new CoverageMap(grid, new Uint8Array(48), tissue);
  map.add(look(0, 0, 256, 256, 1), 0.25);
  assert.equal(map.shareSeen(10), 0.25);
  assert.equal(map.shareSeen(20), 0);
  assert.equal(map.isUnseen(40, 10), false, "glass");
  assert.equal(new CoverageMap(grid, map.finest, null).shareSeen(10), 1 / 48);
  assert.equal(new CoverageMap(grid, map.finest, new Uint8Array(48)).shareSeen(10), null);
});

test("equal consecutive views are merged, and unsent views go first", () => {
  const looks = new Looks();
  looks.add(look(0, 0, 512, 256));
  looks.add(look(0.2, 0, 512, 256.1));
  looks.add(look(300, 0, 812, 256));
  assert.equal(isSameView(look(0, 0, 512, 256), look(0, 0, 512, 256, 1.1)), false);
  const [first] = looks.take(1);
  assert.equal(first!.seconds, 0.5);
  looks.putBack([first!]);
  assert.deepEqual(looks.take(9).map(({ seconds }) => seconds), [0.5, 0.25]);
  assert.ok(looks.isEmpty);
  assert.deepEqual(lookBody(look(0.4, 0, 512.6, 256, 0.123456)), {
    corners: [[0, 0], [513, 0], [513, 256], [0, 256]],
    um_per_px: 0.1235,
    seconds: 0.25,
  });
});
