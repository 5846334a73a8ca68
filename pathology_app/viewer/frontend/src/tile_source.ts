// The store's pyramid as OpenSeadragon sees it: each level with its own chunk size and downsample.
import OpenSeadragon from "openseadragon";
import { cutPadding } from "./edge_tiles";
import type { Level, Slide } from "./types";

/** OpenSeadragon counts levels from the coarsest; the store counts from the finest. */
export function createTileSource(slide: Slide): OpenSeadragon.TileSource {
  const [finest] = slide.levels;
  const maxLevel = slide.levels.length - 1;
  const at = (osdLevel: number): Level => slide.levels[maxLevel - osdLevel];
  const source = new OpenSeadragon.TileSource({
    width: finest.width_px,
    height: finest.height_px,
    tileSize: finest.chunk_px,
    tileOverlap: 0,
    minLevel: 0,
    maxLevel,
  } as OpenSeadragon.TileSourceOptions);

  source.getLevelScale = (osdLevel) => 1 / at(osdLevel).downsample;
  source.getTileWidth = (osdLevel) => at(osdLevel).chunk_px;
  source.getTileHeight = (osdLevel) => at(osdLevel).chunk_px;
  source.getNumTiles = (osdLevel) => {
    const level = at(osdLevel);
    return new OpenSeadragon.Point(
      Math.ceil(level.width_px / level.chunk_px),
      Math.ceil(level.height_px / level.chunk_px),
    );
  };
  source.getTileAtPoint = ((osdLevel: number, point: OpenSeadragon.Point) => {
    const level = at(osdLevel);
    const chunk_px0 = level.chunk_px * level.downsample;
    const tiles = source.getNumTiles(osdLevel);
    const index = (position: number, count: number): number =>
      Math.max(0, Math.min(count - 1, Math.floor((position * finest.width_px) / chunk_px0)));
    return new OpenSeadragon.Point(index(point.x, tiles.x), index(point.y, tiles.y));
    // The published type says Tile; the library itself returns and expects a Point.
  }) as unknown as typeof source.getTileAtPoint;
  source.getTileBounds = (osdLevel, col, row, isSource) => {
    const level = at(osdLevel);
    const left_px = col * level.chunk_px;
    const top_px = row * level.chunk_px;
    // Less than a chunk at the right and bottom edge.
    const width_px = Math.min(level.chunk_px, level.width_px - left_px);
    const height_px = Math.min(level.chunk_px, level.height_px - top_px);
    if (isSource) {
      return new OpenSeadragon.Rect(0, 0, width_px, height_px);
    }
    const scale = level.downsample / finest.width_px;
    return new OpenSeadragon.Rect(left_px * scale, top_px * scale, width_px * scale, height_px * scale);
  };
  source.getTileUrl = (osdLevel, col, row) =>
    slide.tile_url
      .replace("{level}", String(at(osdLevel).level))
      .replace("{col}", String(col))
      .replace("{row}", String(row));
  cutPadding(source);
  return source;
}
