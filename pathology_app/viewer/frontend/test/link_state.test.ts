import assert from "node:assert/strict";
import { test } from "node:test";
import { styleOf, styleText } from "../src/layers/style";
import { viewOf, viewText } from "../src/link_state";

test("a view is what it was written as", () => {
  const upright = { x_um: 12345.6, y_um: 0.5, um_per_px: 0.2525, degrees: 0, isMirrored: false };
  for (const view of [upright, { ...upright, degrees: 95 }, { ...upright, isMirrored: true }, { ...upright, degrees: 270, isMirrored: true }]) {
    assert.deepEqual(viewOf(viewText(view)), view);
  }
  assert.equal(viewText({ ...upright, x_um: 1 / 3, y_um: 2, um_per_px: 1e-3 }), "0.3,2.0,0.001");
});

test("a layer's style is what it was written as", () => {
  for (const bits of [0, 1, 2, 3, 4, 5, 6, 7]) {
    const style = { opacity: 0.4, threshold: 0.55, palette: "Viridis", visible: !(bits & 1), smooth: !!(bits & 2), outline: !!(bits & 4) };
    assert.deepEqual(styleOf(styleText(style)), style);
  }
});

test("what means nothing is nothing", () => {
  for (const text of [null, "", "1", "1,2", "1,2,0", "1,2,-1", "1,2,x", "1,2,3,400", "1,2,3,-1", "1,2,3,4,x", "1,2,3,m", "1,2,3,4,m,m", "NaN,1,1", "1e99,1,1", "1,2,Infinity", ",,", "1,,1"]) {
    assert.equal(viewOf(text), null, String(text));
  }
  for (const text of [null, "", "0.5", "0.5,0.5", "2,0.5,Turbo", "-1,0.5,Turbo", "0.5,x,Turbo", "0.5,0.5,Nope", "0.5,0.5,Turbo,on", "0.5,0.5,Turbo,off,off", ",0.5,Turbo", "0.5,0.5,Turbo,toString"]) {
    assert.equal(styleOf(text), null, String(text));
  }
});
