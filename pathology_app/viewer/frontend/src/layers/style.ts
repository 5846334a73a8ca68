// How a layer is drawn. All of it changes in the browser alone: no slider asks the server.
import { PALETTE_NAMES } from "../palettes";

export interface LayerStyle {
  visible: boolean;
  opacity: number;
  threshold: number;
  palette: string;
  /** Mix neighbouring cells where they are larger than a pixel of the screen. */
  smooth: boolean;
  /** The edge of what reaches the threshold in place of a filled area. */
  outline: boolean;
}

export const DEFAULT_STYLE: LayerStyle = {
  visible: true,
  opacity: 0.5,
  threshold: 0.5,
  palette: PALETTE_NAMES[0]!,
  smooth: false,
  outline: false,
};

const FLAGS = { off: "visible", smooth: "smooth", outline: "outline" } as const;

/** "opacity,threshold,palette", and what is not as usual: ",off", ",smooth", ",outline". */
export function styleText({ opacity, threshold, palette, visible, smooth, outline }: LayerStyle): string {
  const flags = [visible ? "" : "off", smooth ? "smooth" : "", outline ? "outline" : ""];
  return [opacity.toFixed(2), threshold.toFixed(2), palette, ...flags.filter(Boolean)].join(",");
}

/** null where the text is no style. Anybody can write a link. */
export function styleOf(text: string | null): LayerStyle | null {
  const [opacity, threshold, palette, ...flags] = (text ?? "").split(",");
  const shares = [opacity, threshold].map((part) => (part?.trim() ? Number(part) : Number.NaN));
  const isStyle =
    shares.every((share) => share >= 0 && share <= 1) &&
    PALETTE_NAMES.includes(palette ?? "") &&
    flags.every((flag) => Object.hasOwn(FLAGS, flag)) &&
    new Set(flags).size === flags.length;
  if (!isStyle) {
    return null;
  }
  const has = (flag: string): boolean => flags.includes(flag);
  return {
    opacity: shares[0]!,
    threshold: shares[1]!,
    palette: palette!,
    visible: !has("off"),
    smooth: has("smooth"),
    outline: has("outline"),
  };
}
