import assert from "node:assert/strict";
import { test } from "node:test";
import { changesOf, imageOf, imageText, STANDARD_IMAGE } from "../../src/image/state";

const CHANGED = { brightness: -0.12, contrast: 1.25, gamma: 0.8, isScanned: true };

test("image settings survive a round trip through the link", () => {
  for (const isScanned of [true, false]) {
    assert.deepEqual(imageOf(imageText({ ...CHANGED, isScanned })), { ...CHANGED, isScanned });
  }
  assert.equal(imageText(CHANGED), "-0.12,1.25,0.80,scanned");
});

test("the standard image adds nothing to the link", () => {
  assert.equal(imageText(STANDARD_IMAGE), "");
});

test("invalid text is ignored", () => {
  for (const text of [null, "", "0", "0,1", "0,1,1,", "0,1,1,on", "0,1,1,scanned,scanned", "0.6,1,1", "0,0.4,1", "0,1,9", "x,1,1", ",1,1", "0,NaN,1", "0,1,Infinity", "0, ,1", "0,1,toString"]) {
    assert.equal(imageOf(text), null, String(text));
  }
});

test("every adjustment of the image is listed", () => {
  assert.equal(changesOf(STANDARD_IMAGE, true), "");
  assert.equal(changesOf(CHANGED, true), "Image changed: brightness −0.12, contrast 1.25, gamma 0.80, colours as scanned.");
  assert.equal(changesOf({ ...STANDARD_IMAGE, isScanned: true }, false), "");
});
