// The slide's pyramid as an OpenSeadragon tile source: each level has its own tile size and downsample.
import OpenSeadragon from "openseadragon";
import { placeIn } from "./read_ahead";
import type { TileStore } from "./store";
import type { Level, Slide } from "../types";

export interface TileEvents {
  /** A tile has holes: the store is damaged there. */
  onHoles(): void;
}

/** OpenSeadragon counts levels from the coarsest; the server counts from the finest. */
export function createTileSource(slide: Slide, store: TileStore, events: TileEvents): OpenSeadragon.TileSource {
  const [finest] = slide.levels;
  const maxLevel = slide.levels.length - 1;
  const at = (osdLevel: number): Level => slide.levels[maxLevel - osdLevel];
  const source = new OpenSeadragon.TileSource({
    width: finest.width_px,
    height: finest.height_px,
    tileSize: finest.tile_px,
    tileOverlap: 0,
    minLevel: 0,
    maxLevel,
  } as OpenSeadragon.TileSourceOptions);

  source.getLevelScale = (osdLevel) => 1 / at(osdLevel).downsample;
  source.getTileWidth = (osdLevel) => at(osdLevel).tile_px;
  source.getTileHeight = (osdLevel) => at(osdLevel).tile_px;
  source.getNumTiles = (osdLevel) => {
    const level = at(osdLevel);
    return new OpenSeadragon.Point(
      Math.ceil(level.width_px / level.tile_px),
      Math.ceil(level.height_px / level.tile_px),
    );
  };
  source.getTileAtPoint = ((osdLevel: number, point: OpenSeadragon.Point) => {
    const level = at(osdLevel);
    const tile_px0 = level.tile_px * level.downsample;
    const tiles = source.getNumTiles(osdLevel);
    const index = (position: number, count: number): number =>
      Math.max(0, Math.min(count - 1, Math.floor((position * finest.width_px) / tile_px0)));
    return new OpenSeadragon.Point(index(point.x, tiles.x), index(point.y, tiles.y));
    // The published type says Tile; the library itself returns and expects a Point.
  }) as unknown as typeof source.getTileAtPoint;
  source.getTileBounds = (osdLevel, col, row, isSource) => {
    const level = at(osdLevel);
    const left_px = col * level.tile_px;
    const top_px = row * level.tile_px;
    // Tiles at the right and bottom edges are smaller.
    const width_px = Math.min(level.tile_px, level.width_px - left_px);
    const height_px = Math.min(level.tile_px, level.height_px - top_px);
    if (isSource) {
      return new OpenSeadragon.Rect(0, 0, width_px, height_px);
    }
    const scale = level.downsample / finest.width_px;
    return new OpenSeadragon.Rect(left_px * scale, top_px * scale, width_px * scale, height_px * scale);
  };
  source.getTileUrl = (osdLevel, col, row) => placeIn(slide, { level: maxLevel - osdLevel, col, row }).url;
  source.downloadTileStart = (job) => void download(job, store, events);
  source.downloadTileAbort = (job) => (job.userData as Download).stop?.abort();
  return source;
}

interface Download {
  stop?: AbortController;
}

async function download(job: OpenSeadragon.ImageJob, store: TileStore, events: TileEvents): Promise<void> {
  const stop = new AbortController();
  (job.userData as Download).stop = stop;
  try {
    const { width, height } = job.tile.sourceBounds;
    const place = { url: job.src, width, height };
    // Prefetched tiles belong to the view: if the navigator took one, the view would have to wait for another copy.
    const { context, hasHoles } = await (isForNavigator(job.tile) ? store.draw(place, stop.signal) : store.take(place, stop.signal));
    if (hasHoles) {
      events.onHoles();
    }
    job.finish(context, null as unknown as XMLHttpRequest, "context2d");
  } catch (error) {
    if (!stop.signal.aborted) {
      job.fail(String(error), null as unknown as XMLHttpRequest);
    }
  }
}

function isForNavigator(tile: OpenSeadragon.Tile): boolean {
  const { viewer } = tile.tiledImage as unknown as { viewer: OpenSeadragon.Viewer };
  return viewer instanceof OpenSeadragon.Navigator;
}
