// What is damaged in the slide's file: hatched at every magnification, whatever else is shown.
import { hatching } from "./hatching";
import type { Placement } from "./navigation";
import type { DamagedInfo, Level } from "./types";

const [STRIPES, GROUND] = ["rgba(214, 0, 108, 0.85)", "rgba(214, 0, 108, 0.14)"];

export class DamagedAreas {
  private readonly screen = document.createElement("canvas");

  private constructor(
    readonly url: string,
    private readonly mask: ImageBitmap,
    private readonly cell_px0: number,
  ) {}

  static async load(info: DamagedInfo): Promise<DamagedAreas> {
    const response = await fetch(info.url);
    if (!response.ok) {
      throw new Error(`what is damaged in this slide could not be read (${response.status})`);
    }
    return new DamagedAreas(info.url, await createImageBitmap(await response.blob()), info.cell_px0);
  }

  /** Hatch the damaged cells, within the slide. The context is scaled to `ratio` device pixels per CSS pixel. */
  draw(context: CanvasRenderingContext2D, placement: Placement, slide: Level, ratio: number): void {
    const { width, height } = context.canvas;
    if (this.screen.width !== width || this.screen.height !== height) {
      [this.screen.width, this.screen.height] = [width, height];
    }
    const cell = this.cell_px0 * placement.scale;
    const own = this.screen.getContext("2d")!;
    own.setTransform(ratio, 0, 0, ratio, 0, 0);
    own.globalCompositeOperation = "copy";
    // Where several cells fall on one screen pixel a single one must not vanish.
    own.imageSmoothingEnabled = cell * ratio < 1;
    own.drawImage(this.mask, placement.left, placement.top, this.mask.width * cell, this.mask.height * cell);
    own.globalCompositeOperation = "source-in";
    own.fillStyle = own.createPattern(hatching(STRIPES, GROUND), "repeat")!;
    own.fillRect(placement.left, placement.top, slide.width_px * placement.scale, slide.height_px * placement.scale);
    context.drawImage(this.screen, 0, 0, width / ratio, height / ratio);
  }
}
