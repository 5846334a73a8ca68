import assert from "node:assert/strict";
import { test } from "node:test";
import { styleOf, styleText, viewOf, viewText } from "../src/link_state";

test("a view is what it was written as", () => {
  const view = { x_um: 12345.6, y_um: 0.5, um_per_px: 0.2525 };
  assert.deepEqual(viewOf(viewText(view)), view);
  assert.equal(viewText({ x_um: 1 / 3, y_um: 2, um_per_px: 1e-3 }), "0.3,2.0,0.001");
});

test("an overlay's style is what it was written as", () => {
  for (const visible of [true, false]) {
    const style = { opacity: 0.4, threshold: 0.55, palette: "Viridis", visible };
    assert.deepEqual(styleOf(styleText(style)), style);
  }
});

test("what means nothing is nothing", () => {
  for (const text of [null, "", "1", "1,2", "1,2,0", "1,2,-1", "1,2,x", "1,2,3,4", "NaN,1,1", "1e99,1,1", "1,2,Infinity", ",,", "1,,1"]) {
    assert.equal(viewOf(text), null, String(text));
  }
  for (const text of [null, "", "0.5", "0.5,0.5", "2,0.5,Turbo", "-1,0.5,Turbo", "0.5,x,Turbo", "0.5,0.5,Nope", "0.5,0.5,Turbo,on", ",0.5,Turbo"]) {
    assert.equal(styleOf(text), null, String(text));
  }
});
