// A scale bar of a round length, and the magnification an observer would name.

const TARGET_PX = 150;
/** At 10x a pixel of a slide scanner is by custom 1 µm wide. */
const UM_PER_PX_AT_1X = 10;

/** The longest of 1, 2, 5 times a power of ten that is not longer than `limit`. */
export function roundLength(limit: number): number {
  const power = 10 ** Math.floor(Math.log10(limit));
  return power * ([5, 2].find((step) => step * power <= limit) ?? 1);
}

export function lengthText(length_um: number): string {
  return length_um >= 1000 ? `${length_um / 1000} mm` : `${Number(length_um.toPrecision(3))} µm`;
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

  show(um_per_screen_px: number): void {
    const length_um = roundLength(um_per_screen_px * TARGET_PX);
    this.bar.style.width = `${length_um / um_per_screen_px}px`;
    this.caption.textContent = lengthText(length_um);
    const magnification = UM_PER_PX_AT_1X / um_per_screen_px;
    this.magnification.textContent = `≈ ${Number(magnification.toPrecision(2))}×`;
  }
}

/** Screen µm per pixel at a named magnification. */
export function umPerPxAt(magnification: number): number {
  return UM_PER_PX_AT_1X / magnification;
}
