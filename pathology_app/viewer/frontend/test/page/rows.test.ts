import assert from "node:assert/strict";
import { test } from "node:test";
import { rowToGoTo } from "../../src/page/rows";

test("arrows move by a row in a table and stay in it", () => {
  assert.equal(rowToGoTo("ArrowDown", 0, 3, 1), 1);
  assert.equal(rowToGoTo("ArrowUp", 1, 3, 1), 0);
  assert.equal(rowToGoTo("ArrowDown", 2, 3, 1), 2);
  assert.equal(rowToGoTo("ArrowUp", 0, 3, 1), 0);
  assert.equal(rowToGoTo("Home", 2, 3, 1), 0);
  assert.equal(rowToGoTo("End", 0, 3, 1), 2);
});

test("left and right are the browser's in a table, and lead to the next card in a gallery", () => {
  assert.equal(rowToGoTo("ArrowRight", 0, 3, 1), null);
  assert.equal(rowToGoTo("ArrowRight", 0, 8, 4), 1);
  assert.equal(rowToGoTo("ArrowLeft", 4, 8, 4), 3);
  assert.equal(rowToGoTo("ArrowDown", 1, 8, 4), 5);
  assert.equal(rowToGoTo("ArrowDown", 5, 7, 4), 5);
});

test("other keys, and rows of no list, lead nowhere", () => {
  assert.equal(rowToGoTo("Enter", 0, 3, 1), null);
  assert.equal(rowToGoTo("ArrowDown", -1, 3, 1), null);
  assert.equal(rowToGoTo("Home", 0, 0, 1), null);
});
