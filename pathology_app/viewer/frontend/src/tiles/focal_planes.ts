// Focal planes of a slide on the screen. Each is an image of its own in OpenSeadragon: the one shown, and its neighbours,
// which load unseen, so that focusing up and down finds them ready.
import type OpenSeadragon from "openseadragon";
import type { Slide } from "../types";

/** Planes loaded on each side of the one shown. */
const NEIGHBOURS = 1;

/** The slide at one of its planes. */
export function atPlane(slide: Slide, plane: number): Slide {
  const { planes } = slide;
  return planes && plane !== planes.first ? { ...slide, tile_url: planes.tile_url.replace("{plane}", String(plane)) } : slide;
}

/** Planes in the order in which they are loaded: the one shown, then its neighbours. */
export function wantedPlanes(shown: number, count: number): number[] {
  const beside = Array.from({ length: NEIGHBOURS }, (_, index) => [shown + index + 1, shown - index - 1]).flat();
  return [shown, ...beside.filter((plane) => plane >= 0 && plane < count)];
}

export class FocalPlanes {
  private readonly images = new Map<number, OpenSeadragon.TiledImage>();
  private readonly coming = new Set<number>();
  private isClosed = false;
  /** Number of the plane that is wanted; shown as soon as it is loaded. */
  plane: number;

  /**
   * @param osd showing `first`.
   * @param sourceOf the tiles of a plane.
   * @param shown called when the plane on the screen has changed.
   */
  constructor(
    private readonly osd: OpenSeadragon.Viewer,
    readonly count: number,
    private first: number,
    private readonly sourceOf: (plane: number) => OpenSeadragon.TileSource,
    private readonly shown: () => void,
  ) {
    this.plane = first;
    osd.addHandler("open", () => this.opened());
  }

  /** Show another plane, at once if it is loaded. */
  show(plane: number): void {
    this.plane = Math.max(0, Math.min(this.count - 1, plane));
    this.load();
    this.put();
  }

  /** Number of the plane on the screen. */
  get onScreen(): number {
    return this.first;
  }

  /** Whether the plane that is wanted and its neighbours are loaded for the view. */
  get isReady(): boolean {
    return wantedPlanes(this.plane, this.count).every((plane) => this.images.get(plane)?.getFullyLoaded() ?? false);
  }

  close(): void {
    this.isClosed = true;
  }

  private opened(): void {
    this.watch(this.first, this.osd.world.getItemAt(0));
    this.show(this.plane);
  }

  private watch(plane: number, image: OpenSeadragon.TiledImage): void {
    this.images.set(plane, image);
    image.addHandler("fully-loaded-change", () => this.put());
  }

  /** Load the plane that is wanted and its neighbours; drop the others, whose tiles take memory. */
  private load(): void {
    const wanted = wantedPlanes(this.plane, this.count);
    for (const plane of wanted) {
      const image = this.images.get(plane);
      if (image) {
        image.setPreload(true);
      } else if (!this.coming.has(plane) && this.osd.isOpen()) {
        this.add(plane);
      }
    }
    for (const [plane, image] of this.images) {
      if (!wanted.includes(plane) && plane !== this.first) {
        this.images.delete(plane);
        this.osd.world.removeItem(image);
      }
    }
  }

  private add(plane: number): void {
    this.coming.add(plane);
    this.osd.addTiledImage({
      tileSource: this.sourceOf(plane),
      opacity: 0,
      preload: true,
      success: ((event: { item: OpenSeadragon.TiledImage }) => {
        this.coming.delete(plane);
        if (!this.isClosed) {
          this.watch(plane, event.item);
          this.load(); // the wanted plane may have changed meanwhile
          this.put();
        }
      }) as unknown as (event: Event) => void,
      error: () => this.coming.delete(plane),
    });
  }

  /** Put the wanted plane on the screen once it is complete: parts of two planes side by side would mislead. */
  private put(): void {
    const image = this.images.get(this.plane);
    if (this.plane === this.first || !image?.getFullyLoaded()) {
      return;
    }
    const before = this.images.get(this.first);
    image.setOpacity(1);
    before?.setOpacity(0);
    this.first = this.plane;
    this.load();
    this.shown();
  }
}

/** The image on the screen: of a stack, one of several in OpenSeadragon. */
export function imageShown({ world }: OpenSeadragon.Viewer): OpenSeadragon.TiledImage {
  for (let index = world.getItemCount() - 1; index > 0; index--) {
    if (world.getItemAt(index).getOpacity() > 0) {
      return world.getItemAt(index);
    }
  }
  return world.getItemAt(0);
}
