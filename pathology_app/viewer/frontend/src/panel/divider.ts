// The bar between slide and panel: dragged by mouse, finger or arrow keys, it sets the panel's width, or its height where
// the panel is below the slide. The browser remembers both.
import { box } from "./elements";

const LEAST_PX = 160;
/** What always remains of the slide. */
const SLIDE_PX = 240;
const STEP_PX = 16;
/** As in style.css. */
const NARROW = "(max-width: 900px)";

type Side = "width" | "height";

export class Divider {
  readonly element = box("divider");
  private readonly narrow = window.matchMedia(NARROW);
  /** Of the panel plus the pointer's position, where the divider was grabbed. */
  private sum_px = 0;

  /** @param changed called when the panel has another size. */
  constructor(
    private readonly panel: HTMLElement,
    private readonly changed: () => void,
    signal: AbortSignal,
  ) {
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "separator");
    this.element.setAttribute("aria-label", "Size of the panel");
    this.element.title = "Drag, or use the arrow keys, to size the panel; double-click for its first size";
    this.element.addEventListener("pointerdown", (event) => this.grab(event));
    this.element.addEventListener("pointermove", (event) => this.drag(event));
    this.element.addEventListener("keydown", (event) => this.press(event));
    this.element.addEventListener("dblclick", () => this.reset());
    this.narrow.addEventListener("change", () => this.describe(), { signal });
    window.addEventListener("resize", () => this.describe(), { signal });
    for (const side of ["width", "height"] as const) {
      const px = remembered(side);
      if (px !== null) {
        panel.style.setProperty(`--panel-${side}`, `${px}px`);
      }
    }
  }

  /** Update what assistive technology is told, after the window or the panel has changed. */
  describe(): void {
    this.element.hidden = this.panel.hidden;
    this.element.setAttribute("aria-orientation", this.side === "width" ? "vertical" : "horizontal");
    this.element.setAttribute("aria-valuemin", String(LEAST_PX));
    this.element.setAttribute("aria-valuemax", String(this.most));
    this.element.setAttribute("aria-valuenow", String(Math.round(Math.min(this.most, Math.max(LEAST_PX, this.size)))));
  }

  private get side(): Side {
    return this.narrow.matches ? "height" : "width";
  }

  private get size(): number {
    return this.panel.getBoundingClientRect()[this.side];
  }

  private get most(): number {
    const whole = this.panel.parentElement?.getBoundingClientRect()[this.side] ?? 0;
    return Math.max(LEAST_PX, Math.round(whole - SLIDE_PX));
  }

  private grab(event: PointerEvent): void {
    if (event.button === 0) {
      event.preventDefault();
      this.element.setPointerCapture(event.pointerId);
      this.element.focus();
      this.sum_px = this.size + this.place(event);
    }
  }

  private drag(event: PointerEvent): void {
    if (this.element.hasPointerCapture(event.pointerId)) {
      this.resize(this.sum_px - this.place(event));
    }
  }

  /** Position of the pointer along the panel's size. */
  private place({ clientX, clientY }: PointerEvent): number {
    return this.side === "width" ? clientX : clientY;
  }

  private press(event: KeyboardEvent): void {
    const [larger, smaller] = this.side === "width" ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
    const sizes: Record<string, number> = { [larger!]: this.size + STEP_PX, [smaller!]: this.size - STEP_PX, Home: LEAST_PX, End: this.most };
    const px = sizes[event.key];
    if (px !== undefined) {
      event.preventDefault();
      this.resize(px);
    }
  }

  private resize(wanted_px: number): void {
    const px = Math.round(Math.min(this.most, Math.max(LEAST_PX, wanted_px)));
    this.panel.style.setProperty(`--panel-${this.side}`, `${px}px`);
    remember(this.side, String(px));
    this.describe();
    this.changed();
  }

  private reset(): void {
    this.panel.style.removeProperty(`--panel-${this.side}`);
    remember(this.side, null);
    this.describe();
    this.changed();
  }
}

function keyOf(side: Side): string {
  return `gemslide panel ${side}`;
}

/** A size that this browser has stored; null if there is none, or none that a panel can have. */
function remembered(side: Side): number | null {
  try {
    const px = Number(window.localStorage.getItem(keyOf(side)) ?? Number.NaN);
    return px >= LEAST_PX && px <= 4000 ? px : null;
  } catch (error) {
    if (error instanceof DOMException) {
      return null; // storage is switched off
    }
    throw error;
  }
}

function remember(side: Side, px: string | null): void {
  try {
    if (px === null) {
      window.localStorage.removeItem(keyOf(side));
    } else {
      window.localStorage.setItem(keyOf(side), px);
    }
  } catch (error) {
    if (!(error instanceof DOMException)) {
      throw error; // storage that is full or switched off: the size lasts as long as the page
    }
  }
}
