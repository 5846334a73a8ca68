// Chunks at the right and bottom edge are padded to full size, often in black. Smoothing takes the pixels beside those
// it draws from the whole image: left on, the padding would be a dark line at the slide's edge.
import OpenSeadragon from "openseadragon";

/** Hand on each tile of a source without its padding. */
export function cutPadding(source: OpenSeadragon.TileSource): void {
  const download = source.downloadTileStart;
  source.downloadTileStart = (job) => {
    const finish = job.finish;
    job.finish = (image, request, type) => {
      const { width, height } = job.tile.sourceBounds;
      const isPadded = image instanceof HTMLImageElement && (image.width > width || image.height > height);
      finish.apply(job, isPadded ? [cut(image, width, height), request, "context2d"] : [image, request, type]);
    };
    download.call(source, job);
  };
}

function cut(image: HTMLImageElement, width: number, height: number): CanvasRenderingContext2D {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d")!;
  context.drawImage(image, 0, 0);
  return context;
}
