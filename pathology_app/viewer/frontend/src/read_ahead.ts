// While one looks, the fields of view beside this one are made ready: the next key finds them there.
import type OpenSeadragon from "openseadragon";
import type { Navigation } from "./navigation";
import type { TileStore } from "./tile_store";
import type { Level, Slide } from "./types";
import { FINEST_RATIO } from "./viewer_options";

const REST_MS = 60;
const AT_ONCE = 2;

export interface Tile {
  level: number;
  col: number;
  row: number;
}

/** Left, top, right, bottom in level-0 pixels. */
export type Bounds = [number, number, number, number];

/** The level that a slide is shown from, as OpenSeadragon chooses it; levels count from the finest. */
export function levelFor(levels: Level[], scale: number): number {
  const found = levels.findIndex(({ downsample }) => downsample * scale >= FINEST_RATIO);
  return found < 0 ? levels.length - 1 : found;
}

/** The tiles of a level that a rectangle touches, row by row. */
export function tilesIn(levels: Level[], level: number, [left, top, right, bottom]: Bounds): Tile[] {
  const { width_px, height_px, tile_px, downsample } = levels[level]!;
  const range = (from: number, to: number, size: number): number[] => {
    const first = Math.max(0, Math.floor(from / downsample / tile_px));
    const last = Math.min(Math.ceil(size / tile_px) - 1, Math.floor(to / downsample / tile_px));
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  };
  return range(top, bottom, height_px).flatMap((row) => range(left, right, width_px).map((col) => ({ level, col, row })));
}

export class ReadAhead {
  private timer = 0;
  private stop = new AbortController();
  private heading: [number, number] = [1, 0];
  /** Links of the tiles that OpenSeadragon has. */
  private readonly held = new Set<string>();

  constructor(
    private readonly osd: OpenSeadragon.Viewer,
    private readonly navigation: Navigation,
    private readonly slide: Slide,
    private readonly store: TileStore,
  ) {
    osd.addHandler("animation-start", () => this.cancel());
    osd.addHandler("animation-finish", () => this.rest());
    osd.addHandler("open", () => this.rest());
    osd.addHandler("tile-loaded", ({ tile }) => this.held.add(tile.getUrl()));
    osd.addHandler("tile-unloaded", ({ tile }) => this.held.delete(tile.getUrl()));
  }

  /** Which way one moves: that field is made ready first. */
  head(right: number, down: number): void {
    this.heading = [right, down];
    this.rest();
  }

  destroy(): void {
    this.cancel();
  }

  private cancel(): void {
    window.clearTimeout(this.timer);
    this.stop.abort();
  }

  private rest(): void {
    this.cancel();
    this.timer = window.setTimeout(() => void this.look(), REST_MS);
  }

  private async look(): Promise<void> {
    if (!this.osd.isOpen() || this.navigation.isMoving() || !this.osd.world.getItemAt(0).getFullyLoaded()) {
      this.rest();
      return;
    }
    this.stop = new AbortController();
    const { signal } = this.stop;
    const waiting = this.neighbours().values();
    const work = async (): Promise<void> => {
      for (const tile of waiting) {
        if (signal.aborted) {
          return;
        }
        const place = this.placeOf(tile);
        if (!this.held.has(place.url)) {
          await this.store.prepare(place, signal);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  }

  /** Tiles of the fields beside this one. OpenSeadragon asks for the coarser ones below them at the same moment. */
  private neighbours(): Tile[] {
    const { levels } = this.slide;
    const level = levelFor(levels, this.navigation.transform().scale * window.devicePixelRatio);
    const [right, down] = this.heading;
    const ways = [[right, down], [down, right], [-down, -right], [-right, -down]] as const;
    const tiles = ways.flatMap(([across, along]) => {
      const bounds = this.navigation.boundsBeside(across, along);
      return levels.slice(level).flatMap((_, coarser) => tilesIn(levels, level + coarser, bounds));
    });
    return [...new Map(tiles.map((tile) => [nameOf(tile), tile])).values()];
  }

  private placeOf({ level, col, row }: Tile): { url: string; width: number; height: number } {
    const { source } = this.osd.world.getItemAt(0);
    const osdLevel = this.slide.levels.length - 1 - level;
    const { width, height } = source.getTileBounds(osdLevel, col, row, true);
    return { url: String(source.getTileUrl(osdLevel, col, row)), width, height };
  }
}

function nameOf({ level, col, row }: Tile): string {
  return `${level}/${col}_${row}`;
}
