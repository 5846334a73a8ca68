// Tiles being loaded, and tiles prefetched before OpenSeadragon requests them.
import type { TileColours } from "./colours";
import { drawTile, type DrawnTile } from "./drawing";

/** Prefetched tiles kept, each about a megabyte: four fields of view. */
const MAX_READY = 96;

export interface TilePlace {
  url: string;
  width: number;
  height: number;
}

export class TileStore {
  private readonly ready = new Map<string, Promise<DrawnTile>>();

  constructor(private readonly colours: TileColours) {}

  /** Draw a tile, or hand over the prefetched one. */
  async take(place: TilePlace, signal: AbortSignal): Promise<DrawnTile> {
    const ready = this.ready.get(place.url);
    if (ready) {
      this.ready.delete(place.url);
      return ready;
    }
    return this.draw(place, signal);
  }

  /**
   * Prefetch a tile. If that fails, it is requested again when needed, and the error is reported then.
   * @param from where to request it, if not at its own URL.
   */
  async prepare(place: TilePlace, signal: AbortSignal, from = place.url): Promise<void> {
    if (this.ready.has(place.url)) {
      return;
    }
    const tile = this.draw({ ...place, url: from }, signal);
    this.ready.set(place.url, tile);
    try {
      await tile;
    } catch {
      this.ready.delete(place.url);
    }
    for (const url of this.ready.keys()) {
      if (this.ready.size <= MAX_READY) {
        break;
      }
      this.ready.delete(url);
    }
  }

  /** Draw a tile without using prefetched ones. */
  async draw({ url, width, height }: TilePlace, signal: AbortSignal): Promise<DrawnTile> {
    return drawTile(await bodyOf(url, signal), width, height, this.colours);
  }
}

const pending = new Map<string, Promise<ArrayBuffer>>();

/** Bytes of a tile. The navigator and the view request the coarsest tiles at the same time: these are fetched once. */
async function bodyOf(url: string, signal: AbortSignal): Promise<ArrayBuffer> {
  const known = pending.get(url);
  if (known) {
    // The first requester may abort; then the tile is requested again.
    return known.catch(() => fetchBody(url, signal));
  }
  const request = fetchBody(url, signal).finally(() => pending.delete(url));
  pending.set(url, request);
  return request;
}

async function fetchBody(url: string, signal: AbortSignal): Promise<ArrayBuffer> {
  const response = await fetch(url, { signal });
  if (!response.ok) {
    throw new Error(`the server answered ${response.status}`);
  }
  return response.arrayBuffer();
}
