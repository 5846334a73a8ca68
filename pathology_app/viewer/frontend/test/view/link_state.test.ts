import assert from "node:assert/strict";
import { test } from "node:test";
import { Layers } from "../../src/layers/collection";
import { reaches, styleOf, styleText } from "../../src/layers/style";
import { viewOf, viewText } from "../../src/view/link_state";
import type { LayerInfo } from "../../src/types";

test("a view survives a round trip through the link", () => {
  const upright = { x_um: 12345.6, y_um: 0.5, um_per_px: 0.2525, degrees: 0, isMirrored: false };
  for (const view of [upright, { ...upright, degrees: 95 }, { ...upright, isMirrored: true }, { ...upright, degrees: 270, isMirrored: true }]) {
    assert.deepEqual(viewOf(viewText(view)), view);
  }
  assert.equal(viewText({ ...upright, x_um: 1 / 3, y_um: 2, um_per_px: 1e-3 }), "0.3,2.0,0.001");
});

test("a layer's style survives a round trip through the link", () => {
  for (const bits of [0, 1, 2, 3, 4, 5, 6, 7]) {
    const style = { opacity: 0.4, threshold: 0.55, palette: "Viridis", visible: !(bits & 1), smooth: !!(bits & 2), outline: !!(bits & 4) };
    assert.deepEqual(styleOf(styleText(style)), style);
  }
});

test("a threshold finer than the slider's steps is kept, and hotspots with a rounded score reach it", () => {
  const style = { opacity: 0.5, threshold: 0.0123, palette: "Viridis", visible: true, smooth: false, outline: false };
  assert.equal(styleText(style), "0.50,0.0123,Viridis");
  assert.deepEqual(styleOf(styleText(style)), style);
  assert.ok(reaches(0.1234, 0.12344));
  assert.ok(!reaches(0.1233, 0.12344));
});

const layerOf = (model: string, threshold: number): LayerInfo => ({
  id: `${model}/a`, kind: "prediction", group: model, label: "P(a)", url: `/overlays/S/${model}/0.png`, cell_px0: 1, is_mask: false,
  is_first: true, limit: 1, unit: "", note: "", style: { visible: false, opacity: 0.5, threshold, palette: "Signal", outline: false },
});

test("another model's results start at their own threshold, until the user sets one", () => {
  const layers = new Layers(null, null, () => undefined, () => undefined);
  layers.replace([layerOf("m", 0.02)]);
  assert.equal(layers.first!.style.threshold, 0.02);
  assert.equal(layers.firstText(), "");
  layers.replace([layerOf("n", 0.7)]);
  assert.equal(layers.first!.style.threshold, 0.7);
  layers.first!.style.threshold = 0.3;
  assert.equal(layers.firstText(), "0.50,0.30,Signal,off");
  layers.replace([layerOf("m", 0.02)]);
  assert.equal(layers.first!.style.threshold, 0.3);
  assert.equal(new Layers("0.50,0.60,Signal", null, () => undefined, () => undefined).first, null);
});

test("invalid text is ignored", () => {
  for (const text of [null, "", "1", "1,2", "1,2,0", "1,2,-1", "1,2,x", "1,2,3,400", "1,2,3,-1", "1,2,3,4,x", "1,2,3,m", "1,2,3,4,m,m", "NaN,1,1", "1e99,1,1", "1,2,Infinity", ",,", "1,,1"]) {
    assert.equal(viewOf(text), null, String(text));
  }
  for (const text of [null, "", "0.5", "0.5,0.5", "2,0.5,Turbo", "-1,0.5,Turbo", "0.5,x,Turbo", "0.5,0.5,Nope", "0.5,0.5,Turbo,on", "0.5,0.5,Turbo,off,off", ",0.5,Turbo", "0.5,0.5,Turbo,toString"]) {
    assert.equal(styleOf(text), null, String(text));
  }
});
