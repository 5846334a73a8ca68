// Gamepad control, for pathologists who prefer not to drag a mouse. Button numbers follow the Gamepad API's standard mapping.

/** The viewer's actions that a gamepad may trigger. */
export interface GamepadTarget {
  /** As fractions of the screen. */
  pan(right: number, down: number): void;
  /** In steps of the `+` key; fractions are allowed. */
  zoom(steps: number): void;
  run(key: string, shift?: boolean): void;
}

/** Dead zone: below this deflection a stick counts as at rest. */
const DEAD = 0.15;
const SCREENS_PER_S = 1.1;
const ZOOMS_PER_S = 3;

/** Key that each button triggers; a leading plus means with Shift. */
export const BUTTON_KEYS: Readonly<Record<number, string>> = {
  0: "n",
  1: "p",
  2: "o",
  3: "0",
  4: "-",
  5: "+",
  6: "[",
  7: "]",
  8: "?",
  9: "f",
  12: "+ArrowUp",
  13: "+ArrowDown",
  14: "+ArrowLeft",
  15: "+ArrowRight",
};
export const BUTTON_NAMES = "left stick moves, right stick zooms; D-pad: next field of view; A and B: next and previous hotspot; X: overlay; Y: whole slide; triggers: threshold";

/** Response to a stick's deflection: 0 at the centre, with finer control near it. */
export function pushed(axis: number): number {
  const size = Math.abs(axis);
  return size <= DEAD ? 0 : Math.sign(axis) * ((size - DEAD) / (1 - DEAD)) ** 2;
}

export class GamepadControl {
  private frame = 0;
  private last_ms = 0;
  private held = new Set<number>();

  constructor(
    private readonly target: GamepadTarget,
    signal: AbortSignal,
  ) {
    window.addEventListener("gamepadconnected", () => this.start(), { signal });
    signal.addEventListener("abort", () => cancelAnimationFrame(this.frame));
    if (pads().length) {
      this.start();
    }
  }

  /** Read the gamepads once, `elapsed_s` after the last reading. */
  look(elapsed_s: number): void {
    for (const pad of pads()) {
      const [x = 0, y = 0, , zoom = 0] = pad.axes.map(pushed);
      if (x || y) {
        this.target.pan(x * SCREENS_PER_S * elapsed_s, y * SCREENS_PER_S * elapsed_s);
      }
      if (zoom) {
        this.target.zoom(-zoom * ZOOMS_PER_S * elapsed_s);
      }
      pad.buttons.forEach(({ pressed }, index) => this.press(index, pressed));
    }
  }

  private press(index: number, isPressed: boolean): void {
    const key = BUTTON_KEYS[index];
    if (isPressed && key && !this.held.has(index)) {
      this.target.run(key.length > 1 && key.startsWith("+") ? key.slice(1) : key, key.length > 1 && key.startsWith("+"));
    }
    if (isPressed) {
      this.held.add(index);
    } else {
      this.held.delete(index);
    }
  }

  private start(): void {
    cancelAnimationFrame(this.frame);
    this.last_ms = performance.now();
    const step = (now_ms: number): void => {
      // Capped, so that the slide does not jump after the tab was hidden.
      this.look(Math.min(0.1, (now_ms - this.last_ms) / 1000));
      this.last_ms = now_ms;
      if (pads().length) {
        this.frame = requestAnimationFrame(step);
      }
    };
    this.frame = requestAnimationFrame(step);
  }
}

function pads(): Gamepad[] {
  return (navigator.getGamepads?.() ?? []).filter((pad): pad is Gamepad => pad !== null);
}
