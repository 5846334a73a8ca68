// The keys of the viewer. All work wherever the focus is, but in a field or a control that uses them itself.
import type { Command } from "./keys";
import type { SlideViewer } from "./slide_viewer";

const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};
export const MAGNIFICATIONS = [1.25, 2.5, 5, 10, 20, 40];
const STEP = 0.05;

export function commandsOf(viewer: SlideViewer): Command[] {
  const arrows = Object.keys(ARROWS);
  const numbers = MAGNIFICATIONS.map((_, index) => String(index + 1));
  const { toolbar } = viewer;
  return [
    { keys: arrows, shift: false, shown: "Arrows", does: "move a little", run: ({ key }) => viewer.navigation.nudge(...ARROWS[key]!) },
    { keys: arrows, shift: true, shown: "Shift + arrows", does: "to the next field of view", run: ({ key }) => viewer.navigation.nextField(...ARROWS[key]!) },
    { keys: ["+", "="], shown: "+", does: "zoom in", run: () => viewer.navigation.zoom(1) },
    { keys: ["-", "_"], shown: "−", does: "zoom out", run: () => viewer.navigation.zoom(-1) },
    { keys: numbers, shown: `1 to ${numbers.length}`, does: `magnify ${MAGNIFICATIONS.join(", ")} times`, run: ({ key }) => viewer.magnify(MAGNIFICATIONS[Number(key) - 1]!) },
    { keys: ["0", "Home"], shown: "0 or Home", does: "show the whole slide", run: () => viewer.showWhole() },
    { keys: ["n"], shown: "n", does: "next hotspot", run: () => viewer.nextHotspot(1) },
    { keys: ["p"], shown: "p", does: "previous hotspot", run: () => viewer.nextHotspot(-1) },
    { keys: ["o"], shown: "o", does: "prediction on or off", run: () => toolbar.toggleOverlay() },
    { keys: ["["], shown: "[", does: "lower the threshold", run: () => toolbar.step("threshold", -STEP) },
    { keys: ["]"], shown: "]", does: "raise the threshold", run: () => toolbar.step("threshold", STEP) },
    { keys: ["{"], shown: "{", does: "less opacity", run: () => toolbar.step("opacity", -STEP) },
    { keys: ["}"], shown: "}", does: "more opacity", run: () => toolbar.step("opacity", STEP) },
    { keys: ["f"], shown: "f", does: "full screen; Esc ends it", run: () => viewer.fullScreen() },
    { keys: ["?"], shown: "?", does: "this list", run: () => viewer.listKeys() },
  ];
}
