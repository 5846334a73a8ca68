// Tiles upon whole pixels of the screen: at a level's own magnification the screen shows that level's own pixels.
import OpenSeadragon from "openseadragon";

/** What the published type leaves out. */
const CanvasDrawer = OpenSeadragon.CanvasDrawer as unknown as new (settings: object) => OpenSeadragon.CanvasDrawer & {
  minimumOverlapRequired(): boolean;
  draw(images: OpenSeadragon.TiledImage[]): void;
};

/**
 * WebGL is several times slower than a 2-d canvas where there is no GPU, as on a remote desktop. But OpenSeadragon's 2-d
 * drawer makes each tile a pixel wider and higher than it is, and draws it between pixels, so that no seams show:
 * everything is blurred a little, and lies up to a pixel beside its place. Tiles whose edges are rounded alike have no
 * seams either.
 */
export class WholePixelDrawer extends CanvasDrawer {
  /** Of a slide that is turned, edges run across pixels: there it takes the overlap. */
  override minimumOverlapRequired(): boolean {
    return this.viewer.viewport.getRotation(true) % 360 !== 0;
  }

  override draw(images: OpenSeadragon.TiledImage[]): void {
    if (!this.minimumOverlapRequired()) {
      images.flatMap((image) => image.getTilesToDraw()).forEach(({ tile }) => toWholePixels(tile));
    }
    super.draw(images);
  }
}

function toWholePixels(tile: OpenSeadragon.Tile): void {
  const [start, size] = [tile.position!, tile.size!];
  const end = start.plus(size).apply(toWhole);
  tile.position = start.apply(toWhole);
  tile.size = end.minus(tile.position);
}

function toWhole(position: number): number {
  return Math.round(position * OpenSeadragon.pixelDensityRatio) / OpenSeadragon.pixelDensityRatio;
}
