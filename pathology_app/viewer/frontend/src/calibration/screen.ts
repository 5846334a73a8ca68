// Properties of the screen as the browser reports them, with advice.

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

/** Run an action whenever the screen or the zoom may have changed, while an element is on the page. */
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

/** Facts by name, each with advice if something is wrong. */
export function factRows({ ratio, width, height, bits, gamut, isHdr }: ScreenFacts): [string, string, string][] {
  return [
    ["Pixels", `${width} × ${height}`, width * height < 2e6 ? "Less than 1920 × 1080: the field of view is small." : ""],
    [
      "Screen pixels per page pixel",
      String(Number(ratio.toFixed(3))),
      Number.isInteger(ratio) ? "" : "Not a whole number: the page or the desktop is scaled. Set the browser's zoom to 100 % (Ctrl + 0).",
    ],
    ["Bits per pixel", String(bits), bits < 24 ? "Fewer than 24: select millions of colours in the display settings." : ""],
    ["Colour gamut", gamut, gamut === "sRGB or less" ? "" : "Wider than sRGB: colours are correct only with the screen's profile selected in the operating system, or in its sRGB mode."],
    ["Dynamic range", isHdr ? "HDR" : "standard", isHdr ? "Switch HDR off: it changes the appearance of greys." : ""],
  ];
}
