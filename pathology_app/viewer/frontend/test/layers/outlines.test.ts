import assert from "node:assert/strict";
import { test } from "node:test";
import { outlinesOf } from "../../src/layers/outlines";

test("an outline follows every side between inside and outside, and no other", () => {
  // Two rows of four cells; codes of 5 and above are inside.
  const codes = Uint8Array.from([0, 5, 6, 0, 0, 5, 0, 9]);
  const { horizontal, vertical } = outlinesOf(codes, 4, 2, 5);
  const threes = ({ values }: { values: Int32Array }): number[][] =>
    Array.from({ length: values.length / 3 }, (_, index) => [...values.slice(3 * index, 3 * index + 3)]);
  assert.deepEqual(threes(horizontal), [[0, 1, 3], [1, 2, 4], [2, 1, 2], [2, 3, 4]]);
  assert.deepEqual(threes(vertical), [[1, 0, 2], [2, 1, 2], [3, 0, 2], [4, 1, 2]]);
});

test("cells that are all outside have no outline", () => {
  const { horizontal, vertical } = outlinesOf(new Uint8Array(12), 4, 3, 1);
  assert.equal(horizontal.values.length + vertical.values.length, 0);
});
