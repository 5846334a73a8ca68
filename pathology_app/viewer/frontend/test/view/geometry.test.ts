import assert from "node:assert/strict";
import { test } from "node:test";
import { areaOf, lengthOf, Transform } from "../../src/view/geometry";

const near = (actual: number, expected: number): void => assert.ok(Math.abs(actual - expected) < 1e-9, `${actual} is not ${expected}`);

test("screen points map back to the slide points they came from, whether rotated or mirrored", () => {
  for (const [a, b, c, d] of [[2, 0, 0, 2], [0, 2, -2, 0], [-1, 0, 0, 1], [0.6, 0.8, 0.8, -0.6]] as const) {
    const transform = new Transform(a, b, c, d, 17, -5);
    const { x, y } = transform.toSlide(transform.toScreen({ x: 12.5, y: 900 }));
    near(x, 12.5);
    near(y, 900);
    near(transform.scale, Math.hypot(a, b));
  }
});

test("a transform maps the corners that it was made from", () => {
  const transform = Transform.through({ x: 10, y: 20 }, { x: 10, y: 220 }, { x: -190, y: 20 }, 100);
  assert.deepEqual(transform.toScreen({ x: 100, y: 0 }), { x: 10, y: 220 });
  assert.deepEqual(transform.toScreen({ x: 0, y: 50 }), { x: -90, y: 20 });
});

const corners = [{ x: 0, y: 0 }, { x: 400, y: 0 }, { x: 400, y: 300 }, { x: 0, y: 300 }];

test("lengths and areas are correct for either orientation", () => {
  assert.equal(lengthOf([{ x: 0, y: 0 }, { x: 3, y: 4 }, { x: 3, y: 10 }]), 11);
  assert.equal(areaOf(corners), 120_000);
  assert.equal(areaOf([...corners].reverse()), 120_000);
});
