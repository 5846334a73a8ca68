// One value per cell of the slide, from an 8-bit grey PNG: 0 is "not known", otherwise 1 + 254 times the value.
import { type Point, Transform } from "../view/geometry";
import { codeOf, colourTable } from "./palettes";
import { addRuns, type Outlines, outlinesOf } from "./outlines";
import type { LayerStyle } from "./style";

/** Widths of the two strokes of an outline, which make it visible on light and dark backgrounds. */
const [OUTER, INNER] = [3.5, 1.8];

export class Cells {
  private readonly coloured = document.createElement("canvas");
  private drawn = "";
  private outlines: Outlines | null = null;
  private outlined = -1;

  constructor(
    readonly url: string,
    /** Side of a cell in level-0 pixels. */
    readonly cell_px0: number,
    private readonly codes: Uint8Array,
    readonly width: number,
    readonly height: number,
  ) {
    [this.coloured.width, this.coloured.height] = [width, height];
  }

  static async load(url: string, cell_px0: number): Promise<Cells> {
    const response = await fetch(url);
    if (!response.ok) {
      throw new Error(`an overlay could not be loaded (${response.status})`);
    }
    // Colour management would change the codes.
    const options: ImageBitmapOptions = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
    const bitmap = await createImageBitmap(await response.blob(), options);
    const { width, height } = bitmap;
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { willReadFrequently: true })!;
    context.drawImage(bitmap, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    const codes = new Uint8Array(width * height);
    for (let cell = 0; cell < codes.length; cell++) {
      codes[cell] = data[4 * cell]!;
    }
    return new Cells(url, cell_px0, codes, width, height);
  }

  /** Value at a level-0 pixel, to 1/254; null if not known. */
  valueAt({ x, y }: Point): number | null {
    const [col, row] = [Math.floor(x / this.cell_px0), Math.floor(y / this.cell_px0)];
    const isInside = col >= 0 && row >= 0 && col < this.width && row < this.height;
    const code = isInside ? this.codes[row * this.width + col]! : 0;
    return code === 0 ? null : (code - 1) / 254;
  }

  /** Draw the cells that reach the threshold. The context is in CSS pixels of the stage, `ratio` device pixels each. */
  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number, style: LayerStyle): void {
    context.save();
    if (style.outline) {
      this.drawOutlines(context, transform, ratio, style);
    } else {
      this.colour(style);
      transform.apply(context, ratio);
      context.globalAlpha = style.opacity;
      // Cells are drawn as sharp squares, unless several fall on one screen pixel.
      context.imageSmoothingEnabled = style.smooth || this.cell_px0 * transform.scale < 1;
      context.drawImage(this.coloured, 0, 0, this.width * this.cell_px0, this.height * this.cell_px0);
    }
    context.restore();
  }

  private drawOutlines(context: CanvasRenderingContext2D, transform: Transform, ratio: number, style: LayerStyle): void {
    const least = codeOf(style.threshold);
    if (!this.outlines || this.outlined !== least) {
      this.outlines = outlinesOf(this.codes, this.width, this.height, least);
      this.outlined = least;
    }
    const [left, top, right, bottom] = this.visibleCells(context, transform, ratio);
    const path = new Path2D();
    addRuns(path, this.outlines.horizontal, this.cell_px0, false, top, bottom);
    addRuns(path, this.outlines.vertical, this.cell_px0, true, left, right);
    transform.apply(context, ratio);
    context.globalAlpha = Math.max(0.3, style.opacity);
    context.lineCap = "square";
    const table = colourTable(style.palette, 0);
    const word = table[255]!;
    for (const [width, colour] of [
      [OUTER, "rgba(0, 0, 0, 0.55)"],
      [INNER, `rgb(${word & 255} ${(word >> 8) & 255} ${(word >> 16) & 255})`],
    ] as const) {
      context.lineWidth = width / transform.scale;
      context.strokeStyle = colour;
      context.stroke(path);
    }
  }

  private visibleCells(context: CanvasRenderingContext2D, transform: Transform, ratio: number): number[] {
    const [width, height] = [context.canvas.width / ratio, context.canvas.height / ratio];
    const corners = [[0, 0], [width, 0], [0, height], [width, height]].map(([x, y]) => transform.toSlide({ x: x!, y: y! }));
    const [xs, ys] = [corners.map(({ x }) => x / this.cell_px0), corners.map(({ y }) => y / this.cell_px0)];
    return [Math.min(...xs) - 1, Math.min(...ys) - 1, Math.max(...xs) + 1, Math.max(...ys) + 1].map(Math.floor);
  }

  private colour({ palette, threshold }: LayerStyle): void {
    const wanted = `${palette} ${codeOf(threshold)}`;
    if (this.drawn === wanted) {
      return;
    }
    this.drawn = wanted;
    const table = colourTable(palette, threshold);
    const pixels = new Uint32Array(this.codes.length);
    for (let cell = 0; cell < pixels.length; cell++) {
      pixels[cell] = table[this.codes[cell]!]!;
    }
    const image = new ImageData(new Uint8ClampedArray(pixels.buffer), this.width, this.height);
    this.coloured.getContext("2d")!.putImageData(image, 0, 0);
  }
}
