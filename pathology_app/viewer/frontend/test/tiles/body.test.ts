import assert from "node:assert/strict";
import { test } from "node:test";
import { partsOf } from "../../src/tiles/body";

function body(parts: [number, number, number, number, string][], cut = 0): ArrayBuffer {
  const streams = parts.map(([, , , , text]) => new TextEncoder().encode(text));
  const size = 4 + 16 * parts.length + streams.reduce((sum, stream) => sum + stream.length, 0);
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, parts.length, true);
  let at = 4 + 16 * parts.length;
  parts.forEach((part, index) => {
    part.slice(0, 4).forEach((value, n) => view.setUint16(4 + 16 * index + 2 * n, value as number, true));
    view.setUint32(4 + 16 * index + 8, 1 + index, true);
    view.setUint32(4 + 16 * index + 12, streams[index]!.length, true);
    bytes.set(streams[index]!, at);
    at += streams[index]!.length;
  });
  return bytes.slice(0, size - cut).buffer;
}

test("every part has a position, a size and a stream, and a hole has no stream", () => {
  const parts = partsOf(body([[0, 0, 256, 256, "first"], [256, 0, 100, 256, ""], [0, 256, 256, 300, "third"]]));
  assert.deepEqual(
    parts.map(({ jpeg, ...box }) => [box, jpeg && new TextDecoder().decode(jpeg)]),
    [
      [{ x: 0, y: 0, width: 256, height: 256, shrink: 1 }, "first"],
      [{ x: 256, y: 0, width: 100, height: 256, shrink: 2 }, null],
      [{ x: 0, y: 256, width: 256, height: 300, shrink: 3 }, "third"],
    ],
  );
});

test("a tile of bare glass has no parts", () => {
  assert.deepEqual(partsOf(body([])), []);
});

test("a truncated tile is an error, wherever it is cut", () => {
  const whole = body([[0, 0, 256, 256, "first"], [256, 0, 256, 256, "second"]]);
  for (let cut = 1; cut <= whole.byteLength; cut++) {
    assert.throws(() => partsOf(whole.slice(0, whole.byteLength - cut)), /truncated/);
  }
});
