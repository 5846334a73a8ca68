// View and overlay settings in the page's link, so that a reload, the Back button and a colleague see the same. Anybody can
// write a link: invalid values are ignored.
import type { View } from "./navigation";

export const AT = "at";
export const OVERLAY = "overlay";
export const LAYERS = "layers";
export const IMAGE = "image";
/** Height of the focal plane in µm. */
export const FOCUS = "focus";

const MAX_UM = 1e7;
const PAUSE_MS = 300;

/** "x,y,µm per screen pixel", x and y in µm; then degrees, and "m" if mirrored, for a rotated or mirrored slide. */
export function viewText({ x_um, y_um, um_per_px, degrees, isMirrored }: View): string {
  const turned = degrees || isMirrored ? [String(Math.round(degrees)), ...(isMirrored ? ["m"] : [])] : [];
  return [x_um.toFixed(1), y_um.toFixed(1), String(Number(um_per_px.toPrecision(4))), ...turned].join(",");
}

export function viewOf(text: string | null): View | null {
  const parts = (text ?? "").split(",");
  const [x_um, y_um, um_per_px, degrees = 0, ...more] = parts
    .filter((part, index) => index < 4 || part !== "m")
    .map((part) => (part.trim() ? Number(part) : Number.NaN));
  const isView =
    parts.length <= 5 &&
    more.length === 0 &&
    [x_um, y_um].every((at) => Math.abs(at!) <= MAX_UM) &&
    um_per_px! > 0 &&
    um_per_px! <= MAX_UM &&
    degrees >= 0 &&
    degrees < 360;
  return isView ? { x_um: x_um!, y_um: y_um!, um_per_px: um_per_px!, degrees, isMirrored: parts[4] === "m" } : null;
}

/** Keeps the tab's link up to date without adding history entries. */
export class LinkState {
  private readonly wanted = new Map<string, string>();
  private timer = 0;

  /** @param name value of the link's `parameter`; once the link has another value, nothing more is written. */
  constructor(
    private name: string,
    private readonly parameter = "slide",
  ) {}

  /** Follow a change of the page's `parameter` value. */
  rename(name: string): void {
    this.name = name;
  }

  /** null also while the link still names another slide: one is shown before its page. */
  read(name: string): string | null {
    const values = new URLSearchParams(window.location.search);
    return [this.name, null].includes(values.get(this.parameter)) ? values.get(name) : null;
  }

  write(name: string, value: string): void {
    this.wanted.set(name, value);
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.flush(), PAUSE_MS);
  }

  private flush(): void {
    const url = new URL(window.location.href);
    if (url.searchParams.get(this.parameter) !== this.name) {
      return;
    }
    for (const [name, value] of this.wanted) {
      if (value) {
        url.searchParams.set(name, value);
      } else {
        url.searchParams.delete(name);
      }
    }
    this.wanted.clear();
    // These characters are allowed in a query; keep the link readable.
    url.search = url.search.replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
    window.history.replaceState(window.history.state, "", url);
  }
}
