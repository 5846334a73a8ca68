// Draws large numbers of annotations as tiles, painted once and then moved with the slide.
import type { Transform } from "../../view/geometry";
import { type Look, paintTile } from "./painting";
import { parseVectorTile, TILE_PX, type VectorTile } from "./vector_tile";

interface Tile {
  level: number;
  col: number;
  row: number;
  /** Version of the data; older data is shown until the newer has arrived. */
  version: string | null;
  requested: string | null;
  data: VectorTile | null;
  picture: HTMLCanvasElement | null;
  /** Number of the look that it was painted in. */
  painted: number;
}

const MOST_TILES = 160;
const MOST_REQUESTED = 4;
/** Time per frame for painting tiles. */
const PAINTING_MS = 10;
const RETRY_MS = 4000;

export class TileLayer {
  private readonly tiles = new Map<string, Tile>();
  private version = "";
  private isEmpty = false;
  private looks = 0;
  private underWay = 0;
  /** Tiles of the last frame that were missing or outdated. */
  private missing = 0;

  /**
   * @param link URL of a tile, from "{level}/{col}_{row}" and the version.
   * @param changed called when a tile has arrived, to redraw the slide.
   */
  constructor(
    private readonly link: (place: string, version: string) => string,
    private readonly width_px0: number,
    private readonly height_px0: number,
    private readonly look: Look,
    private readonly changed: () => void,
  ) {}

  /** Whether all tiles of the last frame were loaded and up to date. */
  get isSettled(): boolean {
    return this.underWay === 0 && this.missing === 0;
  }

  /** @param isEmpty whether the tiles of this version are empty: then none is requested. */
  setVersion(version: string, isEmpty: boolean): void {
    this.version = version;
    this.isEmpty = isEmpty;
  }

  /** Repaint all tiles, because colours or visibility have changed. */
  lookChanged(): void {
    this.looks++;
  }

  /** Draw the visible tiles; `ratio` is device pixels per CSS pixel. */
  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number, width: number, height: number): void {
    if (!this.version || this.isEmpty) {
      this.missing = 0;
      return;
    }
    const ends = performance.now() + PAINTING_MS;
    const level = this.levelAt(transform.scale * ratio);
    const fineness = finenessAt(transform.scale * ratio * 2 ** level);
    const wanted = this.visible(level, transform, width, height);
    this.missing = 0;
    for (const tile of wanted) {
      this.ask(tile);
      if (tile.data && !this.isPainted(tile, fineness) && performance.now() < ends) {
        this.paint(tile, fineness);
      }
      this.missing += tile.version === this.version && this.isPainted(tile, fineness) ? 0 : 1;
      this.place(context, tile, transform, ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (this.missing && wanted.some((tile) => tile.data && !this.isPainted(tile, fineness))) {
      requestAnimationFrame(this.changed);
    }
    this.forget(wanted);
  }

  /** The level nearest to the screen's resolution. */
  private levelAt(scale: number): number {
    const most = Math.ceil(Math.log2(Math.max(1, Math.max(this.width_px0, this.height_px0) / TILE_PX)));
    return Math.min(most, Math.max(0, Math.round(-Math.log2(scale))));
  }

  private visible(level: number, transform: Transform, width: number, height: number): Tile[] {
    const corners = [[0, 0], [width, 0], [0, height], [width, height]].map(([x, y]) => transform.toSlide({ x: x!, y: y! }));
    const side = TILE_PX * 2 ** level;
    const range = (values: number[], size_px0: number): [number, number] => [
      Math.max(0, Math.floor(Math.min(...values) / side)),
      Math.min(Math.ceil(size_px0 / side) - 1, Math.floor(Math.max(...values) / side)),
    ];
    const [firstCol, lastCol] = range(corners.map(({ x }) => x), this.width_px0);
    const [firstRow, lastRow] = range(corners.map(({ y }) => y), this.height_px0);
    const tiles: Tile[] = [];
    for (let row = firstRow; row <= lastRow; row++) {
      for (let col = firstCol; col <= lastCol; col++) {
        tiles.push(this.tile(level, col, row));
      }
    }
    return tiles;
  }

  private tile(level: number, col: number, row: number): Tile {
    const key = `${level}/${col}_${row}`;
    const tile = this.tiles.get(key) ?? { level, col, row, version: null, requested: null, data: null, picture: null, painted: -1 };
    this.tiles.delete(key); // most recently used last
    this.tiles.set(key, tile);
    return tile;
  }

  private ask(tile: Tile): void {
    if (tile.version !== this.version && tile.requested !== this.version && this.underWay < MOST_REQUESTED) {
      tile.requested = this.version;
      void this.fetch(tile, this.version);
    }
  }

  private async fetch(tile: Tile, version: string): Promise<void> {
    this.underWay++;
    try {
      const response = await fetch(this.link(`${tile.level}/${tile.col}_${tile.row}`, version));
      if (!response.ok) {
        throw new Error(`the server answered ${response.status}`);
      }
      tile.data = parseVectorTile(await response.arrayBuffer());
      tile.version = version;
      tile.painted = -1;
    } catch {
      setTimeout(() => {
        tile.requested = null;
        this.changed();
      }, RETRY_MS);
    } finally {
      this.underWay--;
    }
    this.changed();
  }

  private isPainted({ picture, painted }: Tile, fineness: number): boolean {
    return painted === this.looks && picture?.width === TILE_PX * fineness;
  }

  private paint(tile: Tile, fineness: number): void {
    const picture = tile.picture ?? document.createElement("canvas");
    [picture.width, picture.height] = [TILE_PX * fineness, TILE_PX * fineness];
    const context = picture.getContext("2d")!;
    context.scale(fineness, fineness);
    paintTile(context, tile.data!, this.look, 1 / fineness);
    [tile.picture, tile.painted] = [picture, this.looks];
  }

  /** Draw the tile or, until it is painted, the matching part of a coarser one. */
  private place(context: CanvasRenderingContext2D, tile: Tile, transform: Transform, ratio: number): void {
    const side = TILE_PX * 2 ** tile.level;
    for (let level = tile.level; level < tile.level + 5; level++) {
      const steps = 2 ** (level - tile.level);
      const key = `${level}/${Math.floor(tile.col / steps)}_${Math.floor(tile.row / steps)}`;
      const picture = this.tiles.get(key)?.picture;
      if (picture) {
        const part = picture.width / steps;
        transform.apply(context, ratio);
        context.drawImage(picture, (tile.col % steps) * part, (tile.row % steps) * part, part, part, tile.col * side, tile.row * side, side, side);
        return;
      }
    }
  }

  private forget(wanted: Tile[]): void {
    const inUse = new Set(wanted);
    for (const tile of this.tiles.values()) {
      if (tile.picture && tile.picture.width > TILE_PX && !inUse.has(tile)) {
        tile.picture = null; // it takes several megabytes
      }
    }
    for (const [key, tile] of this.tiles) {
      if (this.tiles.size <= MOST_TILES) {
        return;
      }
      if (!inUse.has(tile)) {
        this.tiles.delete(key);
      }
    }
  }
}

/** Painted pixels per tile pixel: more than one only if level 0 is enlarged. */
function finenessAt(zoom: number): number {
  return Math.min(4, Math.max(1, 2 ** Math.ceil(Math.log2(zoom) - 0.5)));
}
