// Tiles on their way, and tiles made ready before they are asked for.
import type { TileColours } from "./tile_colours";
import { drawTile, type DrawnTile } from "./tile_drawing";

/** Tiles kept ready, each about a megabyte: four fields of view. */
const MAX_READY = 96;

export interface TilePlace {
  url: string;
  width: number;
  height: number;
}

export class TileStore {
  private readonly ready = new Map<string, Promise<DrawnTile>>();

  constructor(private readonly colours: TileColours) {}

  /** The tile, drawn; one that was made ready is given away. */
  async take(place: TilePlace, signal: AbortSignal): Promise<DrawnTile> {
    const ready = this.ready.get(place.url);
    if (ready) {
      this.ready.delete(place.url);
      return ready;
    }
    return this.draw(place, signal);
  }

  /** Make a tile ready. One that cannot be made is asked for again when it is needed, and the error said then. */
  async prepare(place: TilePlace, signal: AbortSignal): Promise<void> {
    if (this.ready.has(place.url)) {
      return;
    }
    const tile = this.draw(place, signal);
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

  /** The tile, whether one was made ready or not. */
  async draw({ url, width, height }: TilePlace, signal: AbortSignal): Promise<DrawnTile> {
    return drawTile(await bodyOf(url, signal), width, height, this.colours);
  }
}

const onTheirWay = new Map<string, Promise<ArrayBuffer>>();

/** A tile's bytes. The navigator asks for the coarsest tiles at the same moment as the view: they come once. */
async function bodyOf(url: string, signal: AbortSignal): Promise<ArrayBuffer> {
  const known = onTheirWay.get(url);
  if (known) {
    // Who asked first may stop waiting; then it is asked for anew.
    return known.catch(() => fetchBody(url, signal));
  }
  const asked = fetchBody(url, signal).finally(() => onTheirWay.delete(url));
  onTheirWay.set(url, asked);
  return asked;
}

async function fetchBody(url: string, signal: AbortSignal): Promise<ArrayBuffer> {
  const response = await fetch(url, { signal });
  if (!response.ok) {
    throw new Error(`the server answered ${response.status}`);
  }
  return response.arrayBuffer();
}
