import assert from "node:assert/strict";
import { test } from "node:test";
import { areaOf, lengthOf, Transform } from "../src/geometry";
import { Measure } from "../src/tools/measure";
import { Counting } from "../src/tools/counting";

const near = (found: number, wanted: number): void => assert.ok(Math.abs(found - wanted) < 1e-9, `${found} is not ${wanted}`);

test("a place on the screen is the place on the slide it came from, turned and mirrored as the slide may be", () => {
  for (const [a, b, c, d] of [[2, 0, 0, 2], [0, 2, -2, 0], [-1, 0, 0, 1], [0.6, 0.8, 0.8, -0.6]] as const) {
    const transform = new Transform(a, b, c, d, 17, -5);
    const { x, y } = transform.toSlide(transform.toScreen({ x: 12.5, y: 900 }));
    near(x, 12.5);
    near(y, 900);
    near(transform.scale, Math.hypot(a, b));
  }
});

test("a transform goes through the corners it was made of", () => {
  const transform = Transform.through({ x: 10, y: 20 }, { x: 10, y: 220 }, { x: -190, y: 20 }, 100);
  assert.deepEqual(transform.toScreen({ x: 100, y: 0 }), { x: 10, y: 220 });
  assert.deepEqual(transform.toScreen({ x: 0, y: 50 }), { x: -90, y: 20 });
});

const corners = [{ x: 0, y: 0 }, { x: 400, y: 0 }, { x: 400, y: 300 }, { x: 0, y: 300 }];

test("lengths and areas are those of the figure, whichever way round", () => {
  assert.equal(lengthOf([{ x: 0, y: 0 }, { x: 3, y: 4 }, { x: 3, y: 10 }]), 11);
  assert.equal(areaOf(corners), 120_000);
  assert.equal(areaOf([...corners].reverse()), 120_000);
});

test("a ruler says micrometres, an area square micrometres and the way around", () => {
  const [ruler, area] = [new Measure("length"), new Measure("area")];
  ruler.press({ x: 0, y: 0 });
  ruler.press({ x: 400, y: 300 });
  corners.forEach((corner) => area.press(corner));
  assert.deepEqual(area.results(0.5), [], "not closed yet");
  area.press(corners.at(-1)!);
  assert.deepEqual([...ruler.results(0.5), ...area.results(0.5)], ["250 µm", "0.03 mm² · 700 µm around"]);
  assert.equal(area.undo(), true);
  assert.equal(area.undo(), false);
});

test("a circle for counting has its area, and counts what lies in it", () => {
  const counting = new Counting({ x: 5000, y: 5000 }, 1, 0.25);
  near((Math.PI * (counting.radius_px0 * 0.25) ** 2) / 1e6, 1);
  counting.press({ x: 5000, y: 5000 });
  counting.press({ x: 5000 + counting.radius_px0 + 1, y: 5000 });
  assert.equal(counting.count, 1);
  counting.area_mm2 = 2;
  assert.equal(counting.count, 2);
});
