import assert from "node:assert/strict";
import { test } from "node:test";
import { parseVectorTile, shortId } from "../../src/annotations/drawing/vector_tile";

/** As pathology_app/annotating/vector_tile.py writes it. */
function tile(): ArrayBuffer {
  const text = JSON.stringify({ change: 7, classes: ["tumour", null], outlines: 2, pieces: 2, corners: 4, cells: 1 });
  const head = new Uint8Array(8 + text.length);
  new DataView(head.buffer).setUint32(0, 0x47565431);
  new DataView(head.buffer).setUint32(4, text.length, true);
  head.set(new TextEncoder().encode(text), 8);
  const parts = [
    head,
    new Uint8Array(new Uint32Array([0x01234567, 0x89abcdef, 1, 2]).buffer),
    new Uint8Array([0, 1]),
    new Uint8Array(new Uint16Array([1, 1]).buffer),
    new Uint8Array([1, 2]),
    new Uint8Array(new Uint16Array([3, 1]).buffer),
    new Uint8Array(new Int16Array([0, 0, 32, 0, 32, -32, 64, 64]).buffer),
    new Uint8Array([5, 6, 0, 9]),
  ];
  const bytes = parts.flatMap((part) => [...part, ...new Array<number>((8 - (part.length % 8)) % 8).fill(0)]);
  return new Uint8Array(bytes).buffer;
}

test("a tile is parsed as it was written", () => {
  const read = parseVectorTile(tile());
  assert.deepEqual(read.ids, ["0123456789abcdef", "0000000100000002"]);
  assert.equal(shortId("01234567-89ab-cdef-0123-456789abcdef"), read.ids[0]);
  assert.deepEqual([read.change, read.classes], [7, ["tumour", null]]);
  assert.deepEqual([...read.cornersOf], [3, 1]);
  assert.deepEqual([...read.corners], [0, 0, 32, 0, 32, -32, 64, 64]);
  assert.deepEqual([...read.cells], [5, 6, 0, 9]);
});

test("an invalid or truncated tile is an error", () => {
  assert.throws(() => parseVectorTile(new ArrayBuffer(4)));
  assert.throws(() => parseVectorTile(new TextEncoder().encode("not a tile at all").buffer as ArrayBuffer));
  assert.throws(() => parseVectorTile(tile().slice(0, -16)));
});
