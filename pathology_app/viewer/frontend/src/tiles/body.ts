// A tile as the server sends it (pathology_app/tiles/tile_body.py): a table of parts, then their JPEG streams.

export interface Part {
  x: number;
  y: number;
  width: number;
  height: number;
  /** Pixels of the stream along each pixel of the tile. */
  shrink: number;
  /** null: damaged in the store. */
  jpeg: Uint8Array<ArrayBuffer> | null;
}

const COUNT_BYTES = 4;
const PART_BYTES = 16;

/** The parts of a tile. Throws where the body is not one. */
export function partsOf(body: ArrayBuffer): Part[] {
  const view = new DataView(body);
  const count = body.byteLength >= COUNT_BYTES ? view.getUint32(0, true) : Number.NaN;
  let start = COUNT_BYTES + count * PART_BYTES;
  if (!(start <= body.byteLength)) {
    throw new Error(`a tile of ${body.byteLength} bytes is cut short`);
  }
  return Array.from({ length: count }, (_, index) => {
    const at = COUNT_BYTES + index * PART_BYTES;
    const [x, y, width, height] = [0, 2, 4, 6].map((offset) => view.getUint16(at + offset, true));
    const [shrink, size] = [view.getUint32(at + 8, true), view.getUint32(at + 12, true)];
    if (start + size > body.byteLength) {
      throw new Error(`a tile of ${body.byteLength} bytes is cut short`);
    }
    const jpeg = size ? new Uint8Array(body, start, size) : null;
    start += size;
    return { x: x!, y: y!, width: width!, height: height!, shrink, jpeg };
  });
}
