// Format of a tile from the server (pathology_app/tiles/tile_body.py): a table of parts, then their JPEG streams.

export interface Part {
  x: number;
  y: number;
  width: number;
  height: number;
  /** Stream pixels per tile pixel along one side. */
  shrink: number;
  /** null if damaged in the store. */
  jpeg: Uint8Array<ArrayBuffer> | null;
}

const COUNT_BYTES = 4;
const PART_BYTES = 16;

/** Parts of a tile. Throws if the body is truncated. */
export function partsOf(body: ArrayBuffer): Part[] {
  const view = new DataView(body);
  const count = body.byteLength >= COUNT_BYTES ? view.getUint32(0, true) : Number.NaN;
  let start = COUNT_BYTES + count * PART_BYTES;
  if (!(start <= body.byteLength)) {
    throw new Error(`a tile of ${body.byteLength} bytes is truncated`);
  }
  return Array.from({ length: count }, (_, index) => {
    const at = COUNT_BYTES + index * PART_BYTES;
    const [x, y, width, height] = [0, 2, 4, 6].map((offset) => view.getUint16(at + offset, true));
    const [shrink, size] = [view.getUint32(at + 8, true), view.getUint32(at + 12, true)];
    if (start + size > body.byteLength) {
      throw new Error(`a tile of ${body.byteLength} bytes is truncated`);
    }
    const jpeg = size ? new Uint8Array(body, start, size) : null;
    start += size;
    return { x: x!, y: y!, width: width!, height: height!, shrink, jpeg };
  });
}
