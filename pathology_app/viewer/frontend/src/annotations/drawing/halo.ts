// Outlines that are visible on pale H&E as on dark DAB: a dark line, a white one on it, and the colour on both.

export const HALO_COLOURS = ["#14181f", "#ffffff"] as const;
const HALO_WIDTHS_PX = [5.2, 3.6] as const;
const WIDTH_PX = 1.9;

/** @param scale size of a screen pixel in the context's own units. */
export function halo(context: CanvasRenderingContext2D, path: Path2D, colour: string, scale: number): void {
  [context.lineJoin, context.lineCap] = ["round", "round"];
  HALO_COLOURS.forEach((under, index) => {
    context.strokeStyle = under;
    context.lineWidth = HALO_WIDTHS_PX[index]! * scale;
    context.stroke(path);
  });
  context.strokeStyle = colour;
  context.lineWidth = WIDTH_PX * scale;
  context.stroke(path);
}

/** Contrast of two colours "#rrggbb" after WCAG 2.2: 1 (none) to 21. */
export function contrast(one: string, other: string): number {
  const [lighter, darker] = [luminance(one), luminance(other)].sort((a, b) => b - a) as [number, number];
  return (lighter + 0.05) / (darker + 0.05);
}

function luminance(colour: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
