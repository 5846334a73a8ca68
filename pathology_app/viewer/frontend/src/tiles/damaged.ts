// Damaged areas of the slide's file: hatched at every magnification, whatever else is shown.
import { hatching } from "./hatching";
import type { Transform } from "../view/geometry";
import type { DamagedInfo, Level } from "../types";

const [STRIPES, GROUND] = ["rgba(214, 0, 108, 0.85)", "rgba(214, 0, 108, 0.14)"];

class DamagedAreas {
  private readonly screen = document.createElement("canvas");

  private constructor(
    readonly url: string,
    private readonly mask: ImageBitmap,
    private readonly cell_px0: number,
  ) {}

  static async load(info: DamagedInfo): Promise<DamagedAreas> {
    const response = await fetch(info.url);
    if (!response.ok) {
      throw new Error(`the map of damaged areas could not be loaded (${response.status})`);
    }
    return new DamagedAreas(info.url, await createImageBitmap(await response.blob()), info.cell_px0);
  }

  /** Hatch the damaged cells within the slide. The context is scaled to `ratio` device pixels per CSS pixel. */
  draw(context: CanvasRenderingContext2D, transform: Transform, slide: Level, ratio: number): void {
    const { width, height } = context.canvas;
    if (this.screen.width !== width || this.screen.height !== height) {
      [this.screen.width, this.screen.height] = [width, height];
    }
    const [across, down] = [this.mask.width * this.cell_px0, this.mask.height * this.cell_px0];
    const own = this.screen.getContext("2d")!;
    own.setTransform(1, 0, 0, 1, 0, 0);
    own.globalCompositeOperation = "copy";
    own.fillStyle = "transparent";
    own.fillRect(0, 0, width, height);
    own.globalCompositeOperation = "source-over";
    transform.apply(own, ratio);
    // Cells extend beyond the slide's edge; the hatching must not.
    own.save();
    own.beginPath();
    own.rect(0, 0, slide.width_px, slide.height_px);
    own.clip();
    // If several cells fall on one screen pixel, a single damaged cell must not vanish.
    own.imageSmoothingEnabled = this.cell_px0 * transform.scale * ratio < 1;
    own.drawImage(this.mask, 0, 0, across, down);
    own.restore();
    own.setTransform(ratio, 0, 0, ratio, 0, 0);
    own.globalCompositeOperation = "source-in";
    own.fillStyle = own.createPattern(hatching(STRIPES, GROUND), "repeat")!;
    own.fillRect(0, 0, width / ratio, height / ratio);
    context.drawImage(this.screen, 0, 0, width / ratio, height / ratio);
  }
}

/** Damaged areas of the current slide, once loaded. */
export class DamagedLayer {
  private areas: DamagedAreas | null = null;

  constructor(
    private readonly changed: () => void,
    private readonly failed: (message: string) => void,
  ) {}

  get isShown(): boolean {
    return this.areas !== null;
  }

  /** @param wanted null if no damage is known. */
  async load(wanted: DamagedInfo | null): Promise<void> {
    if (!wanted) {
      this.areas = null;
    } else if (this.areas?.url !== wanted.url) {
      try {
        this.areas = await DamagedAreas.load(wanted);
      } catch (error) {
        this.failed(String(error));
      }
    }
    this.changed();
  }

  draw(...target: Parameters<DamagedAreas["draw"]>): void {
    this.areas?.draw(...target);
  }
}
