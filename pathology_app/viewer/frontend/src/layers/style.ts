// Style of a layer. Every change is made in the browser: no slider needs the server.
import { PALETTE_NAMES } from "./palettes";
import type { StartingStyle } from "../types";

/** `outline`: draw the edge of the areas that reach the threshold, instead of filling them. */
export interface LayerStyle extends StartingStyle {
  /** Interpolate between cells that are larger than a screen pixel. */
  smooth: boolean;
}

/** Style of a layer before any change. */
export function startOf(style: StartingStyle): LayerStyle {
  return { ...style, smooth: false };
}

/** Two decimals, or up to four if the value has more. */
export function shareText(share: number): string {
  const exact = String(Number(share.toFixed(4)));
  return exact.length > 4 ? exact : share.toFixed(2);
}

/** Whether a score reaches a threshold; scores are stored with four decimals. */
export function reaches(score: number, threshold: number): boolean {
  return score >= Number(threshold.toFixed(4));
}

const FLAGS = { off: "visible", smooth: "smooth", outline: "outline" } as const;

/** "opacity,threshold,palette", then any of ",off", ",smooth", ",outline". */
export function styleText({ opacity, threshold, palette, visible, smooth, outline }: LayerStyle): string {
  const flags = [visible ? "" : "off", smooth ? "smooth" : "", outline ? "outline" : ""];
  return [shareText(opacity), shareText(threshold), palette, ...flags.filter(Boolean)].join(",");
}

/** Parse a style; null if the text is invalid, since anybody can write a link. */
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
