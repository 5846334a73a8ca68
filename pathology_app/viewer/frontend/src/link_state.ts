// What the link says of the view and of the overlay, so that a reload, Back and a colleague see the same. Anybody can write
// a link: what cannot mean anything is taken for nothing said.
import type { View } from "./navigation";
import type { OverlayStyle } from "./overlay";
import { PALETTE_NAMES } from "./palettes";

export const AT = "at";
export const OVERLAY = "overlay";

const MAX_UM = 1e7;
const PAUSE_MS = 300;

/** "x,y,µm per pixel of the screen", x and y in µm. */
export function viewText({ x_um, y_um, um_per_px }: View): string {
  return [x_um.toFixed(1), y_um.toFixed(1), Number(um_per_px.toPrecision(4))].join(",");
}

export function viewOf(text: string | null): View | null {
  const [x_um, y_um, um_per_px, ...more] = (text ?? "").split(",").map((part) => (part.trim() ? Number(part) : Number.NaN));
  const isView =
    more.length === 0 && [x_um, y_um].every((at) => Math.abs(at!) <= MAX_UM) && um_per_px! > 0 && um_per_px! <= MAX_UM;
  return isView ? { x_um: x_um!, y_um: y_um!, um_per_px: um_per_px! } : null;
}

/** "opacity,threshold,palette", and ",off" where it is hidden. */
export function styleText({ opacity, threshold, palette, visible }: OverlayStyle): string {
  return [opacity.toFixed(2), threshold.toFixed(2), palette, ...(visible ? [] : ["off"])].join(",");
}

export function styleOf(text: string | null): OverlayStyle | null {
  const [opacity, threshold, palette, off, ...more] = (text ?? "").split(",");
  const shares = [opacity, threshold].map((part) => (part?.trim() ? Number(part) : Number.NaN));
  const isStyle =
    shares.every((share) => share >= 0 && share <= 1) &&
    PALETTE_NAMES.includes(palette ?? "") &&
    (off === undefined || off === "off") &&
    more.length === 0;
  return isStyle ? { opacity: shares[0]!, threshold: shares[1]!, palette: palette!, visible: off === undefined } : null;
}

/** Keeps the link of this tab true, without a step of the browser's Back for each move. */
export class LinkState {
  private readonly wanted = new Map<string, string>();
  private timer = 0;

  /** @param slideId what the link speaks of; once it names another page, nothing more is written. */
  constructor(private readonly slideId: string) {}

  read(name: string): string | null {
    return new URLSearchParams(window.location.search).get(name);
  }

  write(name: string, value: string): void {
    this.wanted.set(name, value);
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.flush(), PAUSE_MS);
  }

  private flush(): void {
    const url = new URL(window.location.href);
    if (url.searchParams.get("slide") !== this.slideId) {
      return;
    }
    for (const [name, value] of this.wanted) {
      url.searchParams.set(name, value);
    }
    this.wanted.clear();
    // Commas may stand in a query; a link that people read and send should keep them.
    url.search = url.search.replaceAll("%2C", ",");
    window.history.replaceState(window.history.state, "", url);
  }
}
