import assert from "node:assert/strict";
import { test } from "node:test";
import { back, missBy, moved, registrationFrom, registrationOf, registrationText, SAME } from "../src/compare/registration";

const near = (found: number, wanted: number): void => assert.ok(Math.abs(found - wanted) < 1e-6, `${found} is not ${wanted}`);

test("two places on each of two slides say how the one lies on the other", () => {
  const truth = { degrees: 200, x_um: 1500, y_um: -300 };
  const from: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 100, y: 900 }, { x: 4000, y: 250 }];
  const found = registrationOf(from, [moved(truth, from[0]), moved(truth, from[1])]);
  assert.ok(found);
  near(found.degrees, truth.degrees);
  near(found.x_um, truth.x_um);
  near(found.y_um, truth.y_um);
  const there = moved(found, { x: 777, y: 31 });
  near(back(found, there).x, 777);
  near(back(found, there).y, 31);
});

test("slides that are not cut alike share the miss, and it is said", () => {
  const from: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 0, y: 0 }, { x: 100, y: 0 }];
  const to: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 0, y: 0 }, { x: 120, y: 0 }];
  assert.deepEqual(registrationOf(from, to), { degrees: 0, x_um: 10, y_um: 0 });
  assert.equal(missBy(from, to), 10);
});

test("places too near each other say nothing", () => {
  assert.equal(registrationOf([{ x: 0, y: 0 }, { x: 5, y: 5 }], [{ x: 0, y: 0 }, { x: 500, y: 5 }]), null);
});

test("a link keeps it, and what means nothing is nothing", () => {
  const one = { degrees: 12.25, x_um: -40.5, y_um: 3 };
  assert.deepEqual(registrationFrom(registrationText(one)), one);
  assert.deepEqual(registrationFrom(registrationText(SAME)), SAME);
  for (const text of ["", "1", "1,2", "1,2,x", "1,2,3,4", "1,2,1e9", "NaN,1,1"]) {
    assert.equal(registrationFrom(text), null, text);
  }
});
