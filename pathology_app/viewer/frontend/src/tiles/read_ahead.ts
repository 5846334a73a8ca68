// Prefetches the adjacent fields of view while the view rests, so that the next key press finds them ready.
import type OpenSeadragon from "openseadragon";
import type { Navigation, View } from "../view/navigation";
import type { TilePlace, TileStore } from "./store";
import type { Level, Slide } from "../types";
import { imageShown } from "./focal_planes";
import { FINEST_RATIO } from "./osd_options";

const REST_MS = 60;
const AT_ONCE = 2;
/** Enough for a large screen; more would only be requested if the page has no size yet. */
const MOST_FIRST = 60;

export interface Tile {
  level: number;
  col: number;
  row: number;
}

/** Left, top, right, bottom in level-0 pixels. */
export type Bounds = [number, number, number, number];

/** Level that OpenSeadragon shows at a scale; levels count from the finest. */
export function levelFor(levels: Level[], scale: number): number {
  const level = levels.findIndex(({ downsample }) => downsample * scale >= FINEST_RATIO);
  return level < 0 ? levels.length - 1 : level;
}

/** Tiles of a level that intersect a rectangle, row by row. */
export function tilesIn(levels: Level[], level: number, [left, top, right, bottom]: Bounds): Tile[] {
  const { width_px, height_px, tile_px, downsample } = levels[level]!;
  const range = (from: number, to: number, size: number): number[] => {
    const first = Math.max(0, Math.floor(from / downsample / tile_px));
    const last = Math.min(Math.ceil(size / tile_px) - 1, Math.floor(to / downsample / tile_px));
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  };
  return range(top, bottom, height_px).flatMap((row) => range(left, right, width_px).map((col) => ({ level, col, row })));
}

/** Bounds that a stage of a given size shows first, for a view or the whole slide, and its screen pixels per level-0 pixel. */
export function firstLook(levels: Level[], mpp0: number, view: View | null, width: number, height: number): { bounds: Bounds; scale: number } {
  const [{ width_px, height_px }] = levels as [Level];
  const scale = view ? mpp0 / view.um_per_px : Math.min(width / width_px, height / height_px);
  const [x, y] = view ? [view.x_um / mpp0, view.y_um / mpp0] : [width_px / 2, height_px / 2];
  // For a rotated slide, bounds that cover any rotation.
  const [across, down] = view?.degrees ? [Math.hypot(width, height), Math.hypot(width, height)] : [width, height];
  return { bounds: [x - across / scale / 2, y - down / scale / 2, x + across / scale / 2, y + down / scale / 2], scale };
}

/** Request the first tiles while OpenSeadragon is still being created. */
export function beginWith(slide: Slide, store: TileStore, view: View | null, stage: HTMLElement): void {
  const { bounds, scale } = firstLook(slide.levels, slide.mpp0, view, stage.clientWidth, stage.clientHeight);
  const level = levelFor(slide.levels, scale * window.devicePixelRatio);
  for (const tile of tilesIn(slide.levels, level, bounds).slice(0, MOST_FIRST)) {
    void store.prepare(placeIn(slide, tile), new AbortController().signal);
  }
}

/** URL and size of a tile; tiles at the right and bottom edges are smaller. */
export function placeIn({ levels, tile_url }: Slide, { level, col, row }: Tile): TilePlace {
  const { width_px, height_px, tile_px } = levels[level]!;
  const url = tile_url.replace("{level}", String(level)).replace("{col}", String(col)).replace("{row}", String(row));
  return { url, width: Math.min(tile_px, width_px - col * tile_px), height: Math.min(tile_px, height_px - row * tile_px) };
}

export class ReadAhead {
  private timer = 0;
  private stop = new AbortController();
  private heading: [number, number] = [1, 0];
  /** Whether all adjacent tiles are ready. */
  isDone = false;
  /** URLs of the tiles that OpenSeadragon holds. */
  private readonly held = new Set<string>();

  constructor(
    private readonly osd: OpenSeadragon.Viewer,
    private readonly navigation: Navigation,
    private readonly slide: () => Slide,
    private readonly store: TileStore,
    private readonly done: () => void,
  ) {
    osd.addHandler("animation-start", () => this.cancel());
    osd.addHandler("animation-finish", () => this.rest());
    osd.addHandler("open", () => this.rest());
    osd.addHandler("tile-loaded", ({ tile }) => this.held.add(tile.getUrl()));
    osd.addHandler("tile-unloaded", ({ tile }) => this.held.delete(tile.getUrl()));
  }

  /** Set the direction of movement: the field on that side is prefetched first. */
  head(right: number, down: number): void {
    this.heading = [right, down];
    this.rest();
  }

  destroy(): void {
    this.cancel();
  }

  private cancel(): void {
    this.isDone = false;
    window.clearTimeout(this.timer);
    this.stop.abort();
  }

  private rest(): void {
    this.cancel();
    this.timer = window.setTimeout(() => void this.look(), REST_MS);
  }

  private async look(): Promise<void> {
    if (!this.osd.isOpen() || this.navigation.isMoving() || !imageShown(this.osd).getFullyLoaded()) {
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
        const place = placeIn(this.slide(), tile);
        if (!this.held.has(place.url)) {
          await this.store.prepare(place, signal);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    this.isDone = !signal.aborted;
    if (this.isDone) {
      this.done();
    }
  }

  /** Tiles of the adjacent fields, with the coarser tiles below them, which OpenSeadragon requests at the same time. */
  private neighbours(): Tile[] {
    const { levels } = this.slide();
    const level = levelFor(levels, this.navigation.transform().scale * window.devicePixelRatio);
    const [right, down] = this.heading;
    const directions = [[right, down], [down, right], [-down, -right], [-right, -down]] as const;
    const tiles = directions.flatMap(([across, along]) => {
      const bounds = this.navigation.boundsBeside(across, along);
      return levels.slice(level).flatMap((_, coarser) => tilesIn(levels, level + coarser, bounds));
    });
    return [...new Map(tiles.map((tile) => [nameOf(tile), tile])).values()];
  }
}

function nameOf({ level, col, row }: Tile): string {
  return `${level}/${col}_${row}`;
}
