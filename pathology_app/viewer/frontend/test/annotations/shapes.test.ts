import assert from "node:assert/strict";
import { test } from "node:test";
import {
  contains, cornersOf, ellipse, moved, nearestCorner, nearestMiddle, pathsOf, polygon, rectangle, simplified, withCorner, withNewCorner, withoutCorner,
  withPaths,
} from "../../src/annotations/drawing/shapes";
import { sizeText } from "../../src/annotations/drawing/sizes";
import type { Geometry } from "../../src/annotations/types";

const square = rectangle({ x: 0, y: 0 }, { x: 10, y: 10 });
const holed: Geometry = {
  type: "MultiPolygon",
  coordinates: [
    [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]], [[4, 4], [6, 4], [6, 6], [4, 4]]],
    [[[20, 20], [30, 20], [30, 30], [20, 20]]],
  ],
};

test("a geometry survives a round trip through its paths", () => {
  const line: Geometry = { type: "MultiLineString", coordinates: [[[1, 2], [3, 4]], [[5, 6], [7, 8]]] };
  const points: Geometry = { type: "MultiPoint", coordinates: [[1, 2], [3, 4]] };
  for (const geometry of [square, holed, line, points, { type: "Point", coordinates: [1, 2] } as Geometry]) {
    assert.deepEqual(withPaths(geometry, pathsOf(geometry)), geometry);
  }
});

test("a point in a hole is outside the area, but a point near the edge is close enough", () => {
  assert.equal(contains(holed, { x: 2, y: 2 }, 0), true);
  assert.equal(contains(holed, { x: 5.5, y: 4.9 }, 0), false);
  assert.equal(contains(holed, { x: 5.5, y: 4.1 }, 0.2), true);
  assert.equal(contains(holed, { x: 29, y: 21 }, 0), true);
  assert.equal(contains(holed, { x: 15, y: 15 }, 1), false);
});

test("corners are moved, added and removed, and the ring stays closed", () => {
  const wider = withCorner(square, { path: 0, index: 0 }, { x: -5, y: -5 });
  assert.deepEqual(wider, { type: "Polygon", coordinates: [[[-5, -5], [10, 0], [10, 10], [0, 10], [-5, -5]]] });
  const five = withNewCorner(square, { path: 0, index: 3 }, { x: -1, y: 5 });
  assert.equal(cornersOf(five).length, 5);
  assert.deepEqual(withoutCorner(five, { path: 0, index: 4 }), square);
});

test("a hole or part with three corners is removed as a whole, and the last part leaves nothing", () => {
  const filled = withoutCorner(holed, { path: 1, index: 0 })!;
  assert.equal(pathsOf(filled).length, 2);
  const one = withoutCorner(filled, { path: 1, index: 2 })!;
  assert.equal(pathsOf(one).length, 1);
  assert.equal(withoutCorner(polygon([{ x: 0, y: 0 }, { x: 1, y: 0 }, { x: 0, y: 1 }]), { path: 0, index: 0 }), null);
});

test("a moved shape stays on the slide", () => {
  assert.deepEqual(moved(square, { x: 500, y: -500 }, 100, 100), rectangle({ x: 90, y: 0 }, { x: 100, y: 10 }));
});

test("the nearest corner and the nearest midpoint of a side are found within reach", () => {
  assert.deepEqual(nearestCorner(square, { x: 9, y: 1 }, 2), { path: 0, index: 1 });
  assert.equal(nearestCorner(square, { x: 5, y: 5 }, 2), null);
  assert.deepEqual(nearestMiddle(square, { x: 0, y: 5.5 }, 2), { path: 0, index: 3 });
});

test("a simplified freehand line keeps its corners and drops invisible detail", () => {
  const line = Array.from({ length: 101 }, (_, x) => ({ x, y: x <= 50 ? 0.01 * (x % 2) : x - 50 }));
  assert.deepEqual(simplified(line, 0.5), [{ x: 0, y: 0 }, { x: 50, y: 0 }, { x: 100, y: 50 }]);
});

test("areas are given in µm² without their holes", () => {
  assert.equal(sizeText(holed, 1), "148 µm² · perimeter 81 µm");
  assert.equal(sizeText(rectangle({ x: 0, y: 0 }, { x: 4000, y: 2000 }), 0.5), "2 mm² · perimeter 6 mm");
  assert.match(sizeText(ellipse({ x: 0, y: 0 }, { x: 20, y: 20 }), 1), /31[34] µm² · perimeter 6[23]/);
});
