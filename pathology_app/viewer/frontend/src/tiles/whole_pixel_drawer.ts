// Draws tiles on whole screen pixels: at a level's own magnification, the screen shows that level's pixels unchanged.
import OpenSeadragon from "openseadragon";

/** Members that the published type omits. */
const CanvasDrawer = OpenSeadragon.CanvasDrawer as unknown as new (settings: object) => OpenSeadragon.CanvasDrawer & {
  minimumOverlapRequired(): boolean;
  draw(images: OpenSeadragon.TiledImage[]): void;
};

/**
 * Without a GPU, as on a remote desktop, WebGL is several times slower than a 2D canvas. OpenSeadragon's 2D drawer hides
 * seams by drawing each tile one pixel too wide and too high, at fractional positions: the image is slightly blurred and
 * displaced by up to a pixel. Rounding all tile edges the same way avoids seams without either fault.
 */
export class WholePixelDrawer extends CanvasDrawer {
  /** On a rotated slide, edges cross pixels, and the overlap is needed. */
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
