import assert from "node:assert/strict";
import { test } from "node:test";
import { back, missBy, moved, registrationFrom, registrationOf, registrationText, SAME } from "../../src/compare/registration";

const near = (actual: number, expected: number): void => assert.ok(Math.abs(actual - expected) < 1e-6, `${actual} is not ${expected}`);

test("two points on each of two slides determine the registration", () => {
  const truth = { degrees: 200, x_um: 1500, y_um: -300 };
  const from: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 100, y: 900 }, { x: 4000, y: 250 }];
  const registration = registrationOf(from, [moved(truth, from[0]), moved(truth, from[1])]);
  assert.ok(registration);
  near(registration.degrees, truth.degrees);
  near(registration.x_um, truth.x_um);
  near(registration.y_um, truth.y_um);
  const point = moved(registration, { x: 777, y: 31 });
  near(back(registration, point).x, 777);
  near(back(registration, point).y, 31);
});

test("if the distances differ, the residual is split evenly and reported", () => {
  const from: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 0, y: 0 }, { x: 100, y: 0 }];
  const to: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 0, y: 0 }, { x: 120, y: 0 }];
  assert.deepEqual(registrationOf(from, to), { degrees: 0, x_um: 10, y_um: 0 });
  assert.equal(missBy(from, to), 10);
});

test("points too close together give no registration", () => {
  assert.equal(registrationOf([{ x: 0, y: 0 }, { x: 5, y: 5 }], [{ x: 0, y: 0 }, { x: 500, y: 5 }]), null);
});

test("a registration survives a round trip through the link, and invalid text is ignored", () => {
  const one = { degrees: 12.25, x_um: -40.5, y_um: 3 };
  assert.deepEqual(registrationFrom(registrationText(one)), one);
  assert.deepEqual(registrationFrom(registrationText(SAME)), SAME);
  for (const text of ["", "1", "1,2", "1,2,x", "1,2,3,4", "1,2,1e9", "NaN,1,1"]) {
    assert.equal(registrationFrom(text), null, text);
  }
});
