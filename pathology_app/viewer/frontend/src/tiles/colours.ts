// Colours of the tiles on the screen. Tiles arrive in colours as scanned and are converted once, on arrival or, after a
// change of settings, just before they are redrawn. The scanned pixels are kept, so that no change needs the server.
import type OpenSeadragon from "openseadragon";
import { type Converter, profileConverter, tableOf, toneConverter } from "../image/colour";
import type { ImageState } from "../image/state";

export const NO_COLOURS = "This slide's colour profile cannot be used: its colours are shown as scanned.";
/** Tiles whose corrected pixels are cached while settings change: slightly more than one screen shows. */
const MAX_CORRECTED = 48;

interface KnownTile {
  /** Pixels as scanned; null while the canvas itself still holds them. */
  scanned: ImageData | null;
  /** Whether the canvas holds pixels corrected by the profile, with no tone change. */
  isCorrected: boolean;
  /** Draws what must show regardless of the colour settings. */
  finish(context: CanvasRenderingContext2D): void;
  version: number;
}

export class TileColours {
  /** Resolves when the profile has been loaded. Never rejects: without its profile a slide is shown as scanned. */
  readonly ready: Promise<void>;
  private profile: Converter | null = null;
  private tone: Converter | null;
  private version = 0;
  /** Most recently used last. */
  private readonly corrected = new Map<KnownTile, ImageData>();
  private readonly tiles = new WeakMap<CanvasRenderingContext2D, KnownTile>();
  private readonly viewers: OpenSeadragon.Viewer[] = [];

  /** @param url of the profile's table; null if the slide has no profile. */
  constructor(
    url: string | null,
    private state: ImageState,
    private readonly failed: () => void,
  ) {
    this.tone = toneConverter(state);
    this.ready = url ? this.load(url) : Promise.resolve();
  }

  /** Draw a viewer's tiles in these colours. */
  attach(viewer: OpenSeadragon.Viewer): void {
    this.viewers.push(viewer);
    viewer.addHandler("tile-drawing", ({ rendered }) => this.refresh(rendered));
  }

  show(state: ImageState): void {
    this.state = state;
    this.tone = toneConverter(state);
    this.version++;
    this.viewers.forEach((viewer) => viewer.forceRedraw());
  }

  /** Context settings for a new tile: not on the GPU if its pixels will be read back at once. */
  get canvasSettings(): CanvasRenderingContext2DSettings | undefined {
    return this.isChanging ? { willReadFrequently: true } : undefined;
  }

  /** Register a new tile that holds pixels as scanned. */
  add(context: CanvasRenderingContext2D, finish: KnownTile["finish"]): void {
    const tile: KnownTile = { scanned: null, isCorrected: false, finish, version: this.version };
    this.tiles.set(context, tile);
    if (this.isChanging) {
      tile.scanned = pixelsOf(context);
      this.put(context, tile, this.correction ? converted(tile.scanned, this.correction) : tile.scanned);
    }
    finish(context);
  }

  private get correction(): Converter | null {
    return this.state.isScanned ? null : this.profile;
  }

  /** Whether tiles are shown in other colours than scanned. */
  private get isChanging(): boolean {
    return this.correction !== null || this.tone !== null;
  }

  private refresh(context: CanvasRenderingContext2D): void {
    const tile = this.tiles.get(context);
    if (!tile || tile.version === this.version) {
      return;
    }
    tile.version = this.version;
    if (this.isChanging) {
      tile.scanned ??= pixelsOf(context);
      this.put(context, tile, this.correction ? this.correctedOf(context, tile, this.correction) : tile.scanned);
    } else if (tile.scanned) {
      this.put(context, tile, tile.scanned);
      tile.scanned = this.profile ? tile.scanned : null;
    }
    tile.finish(context);
  }

  private correctedOf(context: CanvasRenderingContext2D, tile: KnownTile, correction: Converter): ImageData {
    const pixels = this.corrected.get(tile) ?? (tile.isCorrected ? pixelsOf(context) : converted(tile.scanned!, correction));
    this.corrected.delete(tile);
    this.corrected.set(tile, pixels);
    const [oldest] = this.corrected.keys();
    if (this.corrected.size > MAX_CORRECTED) {
      this.corrected.delete(oldest!);
    }
    return pixels;
  }

  private put(context: CanvasRenderingContext2D, tile: KnownTile, pixels: ImageData): void {
    context.putImageData(this.tone ? converted(pixels, this.tone) : pixels, 0, 0);
    tile.isCorrected = this.correction !== null && this.tone === null;
  }

  private async load(url: string): Promise<void> {
    try {
      const response = await fetch(url);
      if (!response.ok) {
        throw new Error(`the server answered ${response.status}`);
      }
      this.profile = profileConverter(tableOf(await response.arrayBuffer()));
    } catch {
      this.failed();
    }
  }
}

function pixelsOf(context: CanvasRenderingContext2D): ImageData {
  return context.getImageData(0, 0, context.canvas.width, context.canvas.height);
}

function converted({ data, width, height }: ImageData, convert: Converter): ImageData {
  const copy = new ImageData(data.slice(), width, height);
  convert(new Uint32Array(copy.data.buffer));
  return copy;
}
