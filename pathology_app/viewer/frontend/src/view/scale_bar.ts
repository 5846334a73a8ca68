// A scale bar of a round length, and the nominal magnification.

const TARGET_PX = 150;
/** By convention, 10x means 1 µm per pixel. */
const UM_PER_PX_AT_1X = 10;

/** Largest of 1, 2, 5 times a power of ten that does not exceed `limit`. */
export function roundLength(limit: number): number {
  const power = 10 ** Math.floor(Math.log10(limit));
  return power * ([5, 2].find((step) => step * power <= limit) ?? 1);
}

export function lengthText(length_um: number): string {
  return length_um >= 1000 ? `${digits(length_um / 1000, 4)} mm` : `${digits(length_um, 3)} µm`;
}

/** "0.532 mm²", or µm² for a small area. */
export function areaText(area_um2: number): string {
  return area_um2 >= 1e4 ? `${digits(area_um2 / 1e6, 3)} mm²` : `${digits(area_um2, 3)} µm²`;
}

/** Significant digits, with separators above a thousand. */
function digits(value: number, most: number): string {
  return value.toLocaleString("en", { maximumSignificantDigits: most });
}

export class ScaleBar {
  readonly element = document.createElement("div");
  private readonly bar = document.createElement("div");
  private readonly caption = document.createElement("div");
  private readonly magnification = document.createElement("div");

  constructor() {
    this.element.className = "scale panel";
    this.bar.className = "bar";
    this.caption.className = "caption";
    this.magnification.className = "magnification";
    this.element.append(this.caption, this.bar, this.magnification);
  }

  /** @param mpp0 resolution of the scan: beyond it, pixels are only enlarged. */
  show(um_per_screen_px: number, mpp0: number): void {
    const length_um = roundLength(um_per_screen_px * TARGET_PX);
    this.bar.style.width = `${length_um / um_per_screen_px}px`;
    this.caption.textContent = lengthText(length_um);
    this.magnification.textContent = magnificationText(um_per_screen_px, mpp0);
  }
}

/** Nominal magnification; for a slide scanned at 40x, "≈ 40×, enlarged 2×" rather than 80x. */
export function magnificationText(um_per_screen_px: number, mpp0: number): string {
  const enlarged = mpp0 / um_per_screen_px;
  const optical = `≈ ${rounded(UM_PER_PX_AT_1X / Math.max(um_per_screen_px, mpp0))}×`;
  return enlarged > 1.05 ? `${optical}, enlarged ${rounded(enlarged)}×` : optical;
}

function rounded(value: number): number {
  return Number(value.toPrecision(2));
}

/** µm per screen pixel at a nominal magnification. */
export function umPerPxAt(magnification: number): number {
  return UM_PER_PX_AT_1X / magnification;
}
