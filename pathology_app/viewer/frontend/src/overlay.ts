// The prediction of one class: fetched once as grey codes, coloured here, so that no slider asks the server.
import type { Placement } from "./navigation";
import { colourTable } from "./palettes";

export interface OverlayStyle {
  visible: boolean;
  opacity: number;
  threshold: number;
  palette: string;
}

export class Overlay {
  private codes = new Uint8Array(0);
  private coloured = document.createElement("canvas");

  private constructor(readonly url: string, readonly stride_px0: number) {}

  static async load(url: string, stride_px0: number): Promise<Overlay> {
    const response = await fetch(url);
    if (!response.ok) {
      throw new Error(`the overlay could not be read (${response.status})`);
    }
    // Colour management would change the codes.
    const options: ImageBitmapOptions = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
    const bitmap = await createImageBitmap(await response.blob(), options);
    const overlay = new Overlay(url, stride_px0);
    const canvas = overlay.coloured;
    [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    const context = canvas.getContext("2d", { willReadFrequently: true })!;
    context.drawImage(bitmap, 0, 0);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    overlay.codes = new Uint8Array(canvas.width * canvas.height);
    for (let cell = 0; cell < overlay.codes.length; cell++) {
      overlay.codes[cell] = data[4 * cell];
    }
    return overlay;
  }

  colour(style: OverlayStyle): void {
    const { width, height } = this.coloured;
    const table = colourTable(style.palette, style.threshold);
    const pixels = new Uint32Array(this.codes.length);
    for (let cell = 0; cell < pixels.length; cell++) {
      pixels[cell] = table[this.codes[cell]];
    }
    const image = new ImageData(new Uint8ClampedArray(pixels.buffer), width, height);
    this.coloured.getContext("2d")!.putImageData(image, 0, 0);
  }

  draw(context: CanvasRenderingContext2D, placement: Placement, opacity: number): void {
    const cell = this.stride_px0 * placement.scale;
    context.save();
    context.globalAlpha = opacity;
    // Cells are squares with sharp edges, unless several fall on one screen pixel.
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(
      this.coloured,
      placement.left,
      placement.top,
      this.coloured.width * cell,
      this.coloured.height * cell,
    );
    context.restore();
  }
}
