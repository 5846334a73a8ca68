// The keys of the viewer. All work wherever the focus is, but in a field or a control that uses them itself.
import { annotationCommands } from "./annotations/keys";
import { BUTTON_NAMES } from "./gamepad";
import type { Command } from "./keys";
import { MAGNIFICATIONS } from "./navigation";
import type { SlideViewer } from "./slide_viewer";

const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};
const STEP = 0.05;
const FINE_DEGREES = 5;

export function commandsOf(viewer: SlideViewer): Command[] {
  return [...moves(viewer), ...overlays(viewer), ...tools(viewer), ...(viewer.annotations ? annotationCommands(viewer.annotations) : []), ...pages(viewer)];
}

function moves(viewer: SlideViewer): Command[] {
  const arrows = Object.keys(ARROWS);
  const numbers = MAGNIFICATIONS.map((_, index) => String(index + 1));
  const { navigation } = viewer;
  return [
    { keys: arrows, shift: false, shown: "Arrows", does: "move a little", run: ({ key }) => navigation.nudge(...ARROWS[key]!) },
    { keys: arrows, shift: true, shown: "Shift + arrows", does: "to the next field of view", run: ({ key }) => viewer.nextField(...ARROWS[key]!) },
    { keys: ["+", "="], shown: "+", does: "zoom in", run: () => navigation.zoom(1) },
    { keys: ["-", "_"], shown: "−", does: "zoom out", run: () => navigation.zoom(-1) },
    { keys: numbers, shown: `1 to ${numbers.length}`, does: `magnify ${MAGNIFICATIONS.join(", ")} times`, run: ({ key }) => viewer.magnify(MAGNIFICATIONS[Number(key) - 1]!) },
    { keys: ["0", "Home"], shown: "0 or Home", does: "show the whole slide", run: () => viewer.showWhole() },
    { keys: ["t"], shown: "t", does: "turn right by 90°", run: () => viewer.turn(90) },
    { keys: ["T"], shown: "Shift + t", does: "turn left by 90°", run: () => viewer.turn(-90) },
    { keys: [".", ","], shown: ". and ,", does: `turn right and left by ${FINE_DEGREES}°`, run: ({ key }) => viewer.turn(key === "." ? FINE_DEGREES : -FINE_DEGREES) },
    { keys: ["v"], shown: "v", does: "mirror left and right", run: () => viewer.mirror() },
    { keys: ["V"], shown: "Shift + v", does: "upright and not mirrored again", run: () => viewer.setUpright() },
  ];
}

function overlays(viewer: SlideViewer): Command[] {
  const { layerPanel } = viewer;
  return [
    { keys: ["n"], shown: "n", does: "next hotspot", run: () => viewer.nextHotspot(1) },
    { keys: ["p"], shown: "p", does: "previous hotspot", run: () => viewer.nextHotspot(-1) },
    { keys: ["y"], shown: "y", does: "accept this hotspot; again: take that back", run: () => viewer.hotspotList.accept() },
    { keys: ["z"], shown: "z", does: "reject this hotspot; again: take that back", run: () => viewer.hotspotList.reject() },
    { keys: ["u"], shown: "u", does: "veil over what was not looked at yet", run: () => viewer.coverage?.toggle() },
    { keys: ["o"], shown: "o", does: "prediction on or off", run: () => layerPanel.toggleFirst() },
    { keys: ["["], shown: "[", does: "lower the threshold", run: () => layerPanel.step("threshold", -STEP) },
    { keys: ["]"], shown: "]", does: "raise the threshold", run: () => layerPanel.step("threshold", STEP) },
    { keys: ["{"], shown: "{", does: "less opacity", run: () => layerPanel.step("opacity", -STEP) },
    { keys: ["}"], shown: "}", does: "more opacity", run: () => layerPanel.step("opacity", STEP) },
  ];
}

function tools(viewer: SlideViewer): Command[] {
  return [
    { keys: ["m"], shown: "m", does: "ruler: click, or Enter at the middle of the screen", run: () => viewer.take("ruler") },
    { keys: ["M"], shown: "Shift + m", does: "measure an area", run: () => viewer.take("area") },
    { keys: ["c"], shown: "c", does: "circle of 1 mm², of 2 mm², none: click to count", run: () => viewer.take("count") },
    { keys: ["Enter"], shown: "Enter", does: "a point of the tool at the middle of the screen; what the model says there", run: () => viewer.hand.pressMiddle() },
    { keys: ["Backspace"], shown: "Backspace", does: "take the tool's last point back", run: () => viewer.hand.undo() },
    { keys: ["Delete"], shown: "Delete", does: "clear what was measured and counted", run: () => viewer.hand.clear() },
    { keys: ["Escape"], shown: "Esc", does: "lay the tool down", run: () => viewer.hand.layDown() },
  ];
}

function pages(viewer: SlideViewer): Command[] {
  return [
    { keys: ["i"], shown: "i", does: "brightness, contrast, gamma and colours", run: () => viewer.adjustImage() },
    { keys: ["I"], shown: "Shift + i", does: "the slide's own picture again", run: () => viewer.image.reset() },
    { keys: ["k"], shown: "k", does: "colours as scanned, or corrected by the scanner's profile", run: () => viewer.image.toggleColours() },
    { keys: ["b"], shown: "b", does: "panel on or off", run: () => viewer.togglePanel() },
    { keys: ["f"], shown: "f", does: "full screen; Esc ends it", run: () => viewer.fullScreen() },
    { keys: ["?"], shown: "?", does: "this list", run: () => viewer.listKeys() },
    { keys: [], shown: "Gamepad", does: BUTTON_NAMES, run: () => undefined },
  ];
}
