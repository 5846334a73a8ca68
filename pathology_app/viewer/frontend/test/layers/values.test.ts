import assert from "node:assert/strict";
import { test } from "node:test";
import { rangeText, thresholdText, tickTexts, valueText } from "../../src/layers/values";

const shares = { limit: 1, unit: "" };
const attention = { limit: 9.3, unit: "× average" };

test("a probability stays a share of one", () => {
  assert.equal(valueText(0.925, shares), "0.93");
  assert.equal(valueText(1, shares), "1.00");
  assert.equal(thresholdText(0.5, shares), "0.50");
  assert.equal(rangeText(0.02, shares), "from 0.02");
  assert.deepEqual(tickTexts(shares), ["0", "0.5", "1"]);
});

test("attention is read to a tenth of the average, whatever it was stored as", () => {
  for (let value = 0; value < 9.25; value += 0.05) {
    const code = 1 + Math.floor((value / attention.limit) * 254);
    const shown = Number.parseFloat(valueText((code - 1) / 254, attention));
    assert.ok(Math.abs(shown - value) <= 0.05 + attention.limit / 508 + 1e-9, `${value}: ${shown}`);
  }
  assert.equal(valueText((1 + Math.floor((2.4 / 9.3) * 254) - 1) / 254, attention), "2.4 × average");
});

test("beyond the colour range only a lower bound is known", () => {
  assert.equal(valueText(1, attention), "≥ 9.3 × average");
  assert.deepEqual(tickTexts(attention), ["0", "4.7", "≥ 9.3"]);
  assert.equal(rangeText(0.25, { limit: 8, unit: "× average" }), "2.0–8 ×");
  assert.equal(thresholdText(0.25, { limit: 8, unit: "× average" }), "2.0 × average");
});

test("no decimals are shown that the cells cannot hold", () => {
  assert.equal(valueText(0.5, { limit: 400, unit: "× average" }), "201 × average");
  assert.deepEqual(tickTexts({ limit: 65504, unit: "× average" }), ["0", "32752", "≥ 65504"]);
});
