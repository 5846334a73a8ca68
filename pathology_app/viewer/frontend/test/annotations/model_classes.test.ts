import assert from "node:assert/strict";
import { test } from "node:test";
import { classesOf } from "../../src/annotations/model_classes";
import type { LayerInfo } from "../../src/types";

const layer = (kind: string, id: string): LayerInfo => ({ kind, id }) as LayerInfo;

test("only what a model tells apart is a class: no score, no attention", () => {
  const layers = [layer("prediction", "m-1/tumour%2Fin%20situ"), layer("prediction", "m-2/tumour%2Fin%20situ"), layer("prediction", "quality/ink"), layer("attention", "attention/slides-1"), layer("tissue", "tissue"), layer("quality", "quality/blur")];
  assert.deepEqual(classesOf(layers), ["tumour/in situ", "ink"]);
});
