// What the browser says of the screen, and what follows from it.

export interface ScreenFacts {
  /** Device pixels per CSS pixel. */
  ratio: number;
  width: number;
  height: number;
  bits: number;
  gamut: "sRGB or less" | "P3" | "Rec. 2020";
  isHdr: boolean;
}

export function screenFacts(): ScreenFacts {
  const has = (query: string): boolean => window.matchMedia(query).matches;
  const ratio = window.devicePixelRatio;
  return {
    ratio,
    width: Math.round(window.screen.width * ratio),
    height: Math.round(window.screen.height * ratio),
    bits: window.screen.colorDepth,
    gamut: has("(color-gamut: rec2020)") ? "Rec. 2020" : has("(color-gamut: p3)") ? "P3" : "sRGB or less",
    isHdr: has("(dynamic-range: high)"),
  };
}

/** Do something whenever the screen or the zoom may have changed, for as long as an element is on the page. */
export function whenResized(element: Element, action: () => void): void {
  const listener = (): void => {
    if (element.isConnected) {
      action();
    } else {
      window.removeEventListener("resize", listener);
    }
  };
  window.addEventListener("resize", listener);
}

/** Facts by name, each with what to do where something is amiss. */
export function factRows({ ratio, width, height, bits, gamut, isHdr }: ScreenFacts): [string, string, string][] {
  return [
    ["Pixels", `${width} × ${height}`, width * height < 2e6 ? "Less than 1920 × 1080: fields of view are small." : ""],
    [
      "Screen pixels per page pixel",
      String(Number(ratio.toFixed(3))),
      Number.isInteger(ratio) ? "" : "Not a whole number: the page or the system is enlarged. Set the browser's zoom to 100 % (Ctrl + 0).",
    ],
    ["Bits per pixel", String(bits), bits < 24 ? "Fewer than 24: choose millions of colours in the system's settings." : ""],
    ["Range of colours", gamut, gamut === "sRGB or less" ? "" : "Wider than sRGB: colours are right only with the screen's profile chosen in the system, or its sRGB mode."],
    ["Brightness range", isHdr ? "HDR" : "standard", isHdr ? "Switch HDR off: it changes what greys look like." : ""],
  ];
}
