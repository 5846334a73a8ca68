// Loads the slides that may be opened next, as far as the whole slide on the screen needs. Like thumbnails in a list, this
// does not count as viewing them.
import { STANDARD_IMAGE } from "../image/state";
import { TileColours } from "../tiles/colours";
import { firstLook, levelFor, placeIn, tilesIn } from "../tiles/read_ahead";
import { TileStore } from "../tiles/store";
import type { Slide } from "../types";
import { answerOf } from "./api";

/** Longer side of the finest level that the server sends ahead (pathology_app/tiles/routes.py). */
const MAX_AHEAD_PX = 2560;
const MOST_TILES = 60;
/** The slides before and after the one shown. */
const MOST_SLIDES = 2;

/** A slide whose first tiles are ready. */
export interface Prepared {
  slide: Slide;
  colours: TileColours;
  tiles: TileStore;
}

export class Ahead {
  private readonly ready = new Map<string, Promise<Prepared | null>>();

  /** Load a slide, unless it is loaded. */
  async prepare(slideId: string, stage: HTMLElement, signal: AbortSignal): Promise<void> {
    if (!this.ready.has(slideId)) {
      const [oldest] = this.ready.keys();
      if (this.ready.size >= MOST_SLIDES) {
        this.ready.delete(oldest!);
      }
      // A slide that cannot be loaded ahead is reported when it is opened.
      this.ready.set(slideId, load(slideId, stage, signal).catch(() => null));
    }
    await this.ready.get(slideId);
  }

  /** Hand over a slide; null if it is not loaded, or has been ingested again since. */
  async take({ slide_id, tile_url }: Slide): Promise<Prepared | null> {
    const prepared = (await this.ready.get(slide_id)) ?? null;
    this.ready.delete(slide_id);
    return prepared?.slide.tile_url === tile_url ? prepared : null;
  }
}

async function load(slideId: string, stage: HTMLElement, signal: AbortSignal): Promise<Prepared | null> {
  const folder = `/ahead/${encodeURIComponent(slideId)}`;
  const slide = await answerOf<Slide>(`${folder}/slide.json`, signal);
  const version = new URL(slide.tile_url, window.location.origin).search;
  let isAsScanned = false;
  const colours = new TileColours(slide.colour_url && `${folder}/colour${version}`, STANDARD_IMAGE, () => (isAsScanned = true));
  const tiles = new TileStore(colours);
  await colours.ready;
  const { bounds, scale } = firstLook(slide.levels, slide.mpp0, null, stage.clientWidth, stage.clientHeight);
  const wanted = levelFor(slide.levels, scale * window.devicePixelRatio);
  const allowed = slide.levels.findIndex(({ width_px, height_px }) => Math.max(width_px, height_px) <= MAX_AHEAD_PX);
  if (isAsScanned || allowed < 0) {
    return null;
  }
  for (const tile of tilesIn(slide.levels, Math.max(wanted, allowed), bounds).slice(0, MOST_TILES)) {
    const place = placeIn(slide, tile);
    await tiles.prepare(place, signal, `${folder}/${tile.level}/${tile.col}_${tile.row}${version}`);
  }
  return { slide, colours, tiles };
}
