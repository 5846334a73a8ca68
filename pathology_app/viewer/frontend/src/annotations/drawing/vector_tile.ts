// Reads annotation tiles (pathology_app/annotating/vector_tile.py).

export const TILE_PX = 512;
/** Coordinate steps per tile pixel. */
export const PER_PX = 32;
export const CELL_PX = 2;
export const [LINE, RING, POINTS] = [0, 1, 2];

export interface VectorTile {
  change: number;
  classes: (string | null)[];
  /** First 16 digits of the id of every outline. */
  ids: string[];
  classOf: Uint8Array;
  piecesOf: Uint16Array;
  kinds: Uint8Array;
  cornersOf: Uint16Array;
  /** Alternating x and y. */
  corners: Int16Array;
  /** Repeated groups of column, row, class and count. */
  cells: Uint8Array;
}

/** Digits of an annotation's id that a tile contains. */
export function shortId(id: string): string {
  return id.replaceAll("-", "").slice(0, 16);
}

/** Parse a tile. Throws if the bytes are not an annotation tile. */
export function parseVectorTile(buffer: ArrayBuffer): VectorTile {
  const view = new DataView(buffer);
  if (buffer.byteLength < 8 || view.getUint32(0) !== 0x47565431) {
    throw new Error("not an annotation tile");
  }
  const text = new TextDecoder().decode(new Uint8Array(buffer, 8, view.getUint32(4, true)));
  const header = JSON.parse(text) as { change: number; classes: (string | null)[]; outlines: number; pieces: number; corners: number; cells: number };
  let at = padded(8 + view.getUint32(4, true));
  const take = (bytes: number): number => {
    const start = at;
    at = padded(at + bytes);
    return start;
  };
  const { outlines, pieces, corners, cells } = header;
  const ids = new Uint32Array(buffer, take(8 * outlines), 2 * outlines);
  return {
    change: header.change,
    classes: header.classes,
    ids: Array.from({ length: outlines }, (_, index) => hex(ids[2 * index]!) + hex(ids[2 * index + 1]!)),
    classOf: new Uint8Array(buffer, take(outlines), outlines),
    piecesOf: new Uint16Array(buffer, take(2 * outlines), outlines),
    kinds: new Uint8Array(buffer, take(pieces), pieces),
    cornersOf: new Uint16Array(buffer, take(2 * pieces), pieces),
    corners: new Int16Array(buffer, take(4 * corners), 2 * corners),
    cells: new Uint8Array(buffer, take(4 * cells), 4 * cells),
  };
}

const padded = (bytes: number): number => Math.ceil(bytes / 8) * 8;
const hex = (value: number): string => value.toString(16).padStart(8, "0");
