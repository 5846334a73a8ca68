import assert from "node:assert/strict";
import { test } from "node:test";
import { GamepadControl, pushed } from "../../src/controls/gamepad";

test("a stick at rest moves nothing, and a larger deflection moves faster", () => {
  assert.deepEqual([0, 0.1, -0.14].map(pushed), [0, 0, 0]);
  assert.ok(pushed(0.5) > 0 && pushed(1) === 1 && pushed(-1) === -1);
  assert.ok(pushed(0.5) < 0.5);
});

test("a button held down counts as one press, and sticks move in proportion to elapsed time", () => {
  const pad = { axes: [1, 0, 0, -1], buttons: Array.from({ length: 16 }, () => ({ pressed: false })) };
  Object.assign(globalThis, { window: new EventTarget(), requestAnimationFrame: () => 0, cancelAnimationFrame: () => undefined });
  Object.defineProperty(globalThis, "navigator", { value: { getGamepads: () => [null, pad] }, configurable: true });
  const calls: string[] = [];
  const control = new GamepadControl(
    {
      pan: (right, down) => calls.push(`pan ${right.toFixed(2)} ${down.toFixed(2)}`),
      zoom: (steps) => calls.push(`zoom ${steps.toFixed(2)}`),
      run: (key, shift) => calls.push(`${shift ? "Shift+" : ""}${key}`),
    },
    new AbortController().signal,
  );
  pad.buttons[0]!.pressed = pad.buttons[15]!.pressed = true;
  control.look(0.1);
  control.look(0.05);
  assert.deepEqual(calls, ["pan 0.11 0.00", "zoom 0.30", "n", "Shift+ArrowRight", "pan 0.06 0.00", "zoom 0.15"]);
});
