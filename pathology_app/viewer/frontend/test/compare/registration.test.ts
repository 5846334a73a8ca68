import assert from "node:assert/strict";
import { test } from "node:test";
import { back, degreesOf, isMirrored, missBy, moved, onFirst, onOther, registrationFrom, registrationOf, registrationOfMatrix, registrationText, rigid, SAME } from "../../src/compare/registration";

const near = (actual: number, expected: number): void => assert.ok(Math.abs(actual - expected) < 1e-6, `${actual} is not ${expected}`);

test("two points on each of two slides determine the registration", () => {
  const truth = rigid(200, 1500, -300);
  const from: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 100, y: 900 }, { x: 4000, y: 250 }];
  const registration = registrationOf(from, [moved(truth, from[0]), moved(truth, from[1])]);
  assert.ok(registration);
  near(degreesOf(registration), 200);
  near(registration.x_um, truth.x_um);
  near(registration.y_um, truth.y_um);
  const point = moved(registration, { x: 777, y: 31 });
  near(back(registration, point).x, 777);
  near(back(registration, point).y, 31);
});

test("if the distances differ, the residual is split evenly and reported", () => {
  const from: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 0, y: 0 }, { x: 100, y: 0 }];
  const to: [{ x: number; y: number }, { x: number; y: number }] = [{ x: 0, y: 0 }, { x: 120, y: 0 }];
  assert.deepEqual(registrationOf(from, to), rigid(0, 10, 0));
  assert.equal(missBy(from, to), 10);
});

test("points too close together give no registration", () => {
  assert.equal(registrationOf([{ x: 0, y: 0 }, { x: 5, y: 5 }], [{ x: 0, y: 0 }, { x: 500, y: 5 }]), null);
});

test("a registration survives a round trip through the link, and invalid text is ignored", () => {
  const one = rigid(12.25, -40.5, 3);
  assert.equal(registrationText(one), "12.25,-40.5,3.0");
  assert.deepEqual(registrationFrom(registrationText(one)), one);
  const bent = { a: -0.97, b: 0.125, x_um: 4100.5, d: 0.11, e: 1.02, y_um: -7 };
  assert.deepEqual(registrationFrom(registrationText(bent)), bent);
  assert.deepEqual(registrationFrom(registrationText(SAME)), SAME);
  for (const text of ["", "1", "1,2", "1,2,x", "1,2,3,4", "1,2,1e9", "NaN,1,1", "0,0,1,0,0,1", "9,0,1,0,9,1", "1,0,Infinity,0,1,0"]) {
    assert.equal(registrationFrom(text), null, text);
  }
});

test("another slide shows the same tissue at the same place of the screen, turned and mirrored as it lies there", () => {
  // Screen position of a point of a slide in a view, as OpenSeadragon places it.
  const onScreen = (view: { x_um: number; y_um: number; um_per_px: number; degrees: number; isMirrored: boolean }, at: { x: number; y: number }): { x: number; y: number } => {
    const turned = moved(rigid(view.degrees, 0, 0), { x: (at.x - view.x_um) / view.um_per_px, y: (at.y - view.y_um) / view.um_per_px });
    return view.isMirrored ? { x: -turned.x, y: turned.y } : turned;
  };
  const mirrored = { a: -Math.cos(0.7), b: -Math.sin(0.7), x_um: 900, d: -Math.sin(0.7), e: Math.cos(0.7), y_um: 40 };
  assert.ok(isMirrored(mirrored));
  near(degreesOf(mirrored), (0.7 * 180) / Math.PI);
  for (const registration of [rigid(33, 500, -20), mirrored]) {
    for (const isFlipped of [false, true]) {
      const view = { x_um: 1000, y_um: 700, um_per_px: 2, degrees: 50, isMirrored: isFlipped };
      const other = onOther(view, registration);
      const point = { x: 1234, y: 567 };
      near(onScreen(other, moved(registration, point)).x, onScreen(view, point).x);
      near(onScreen(other, moved(registration, point)).y, onScreen(view, point).y);
      const again = onFirst(other, registration);
      near(again.x_um, view.x_um);
      near(again.degrees, view.degrees);
      assert.equal(again.isMirrored, view.isMirrored);
    }
  }
});

test("a matrix that cannot be a registration is refused", () => {
  assert.equal(registrationOfMatrix([1, 0, 0, 0, 1]), null);
  assert.equal(registrationOfMatrix([1, 0, Number.NaN, 0, 1, 0]), null);
  assert.deepEqual(registrationOfMatrix([1, -0, 0, 0, 1, 0]), SAME);
});
