import assert from "node:assert/strict";
import { test } from "node:test";
import { PALETTE_NAMES, codeOf, colourOf, colourTable } from "../../src/layers/palettes";

const rgba = (pixel: number): number[] => [0, 8, 16, 24].map((shift) => (pixel >>> shift) & 255);

test("a table colours codes that reach the threshold, and leaves \"not predicted\" transparent", () => {
  for (const palette of PALETTE_NAMES) {
    const table = colourTable(palette, 0.5);
    assert.equal(rgba(table[0]!)[3], 0);
    assert.equal(rgba(table[codeOf(0.5) - 1]!)[3], 0);
    assert.deepEqual(rgba(table[codeOf(0.5)]!), [...colourOf(palette, (codeOf(0.5) - 1) / 254), 255]);
    assert.deepEqual(rgba(table[255]!), [...colourOf(palette, 1), 255]);
  }
});
