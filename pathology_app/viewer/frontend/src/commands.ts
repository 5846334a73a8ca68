// Keyboard commands of the viewer. They work wherever the focus is, except in a field or control that uses the key itself.
import { annotationCommands } from "./annotations/keys";
import { BUTTON_NAMES } from "./controls/gamepad";
import type { Command } from "./controls/keys";
import { READING_KEYS } from "./reading/answer_keys";
import { backToList } from "./page/left_row";
import { MAGNIFICATIONS } from "./view/navigation";
import type { Viewer } from "./viewer";

const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};
/** The page's button (app_pages/slide/page.py). */
const COMPARE = ".st-key-compare_with button";
const STEP = 0.05;
const FINE_DEGREES = 5;

export function commandsOf(viewer: Viewer): Command[] {
  return [...cases(viewer), ...moves(viewer), ...overlays(viewer), ...tools(viewer), ...annotationCommands(viewer.annotations), ...reading(viewer), ...pages(viewer)];
}

function cases(viewer: Viewer): Command[] {
  const { beside } = viewer;
  return beside
    ? [
        { keys: [".", ","], shown: ". and ,", does: "next and previous slide of the case or list", run: ({ key }) => beside.step(key === "." ? 1 : -1) },
        { keys: ["x"], shown: "x", does: "compare with the other slides of the case, or the models", run: () => viewer.page.then(compareWithCase) },
      ]
    : [];
}

function compareWithCase(): void {
  document.querySelector<HTMLButtonElement>(COMPARE)?.click();
}

function moves(viewer: Viewer): Command[] {
  const arrows = Object.keys(ARROWS);
  const numbers = MAGNIFICATIONS.map((_, index) => String(index + 1));
  const { navigation } = viewer;
  return [
    { keys: arrows, shift: false, shown: "Arrows", does: "move a little", run: ({ key }) => navigation.nudge(...ARROWS[key]!) },
    { keys: arrows, shift: true, shown: "Shift + arrows", does: "move to the next field of view", run: ({ key }) => viewer.nextField(...ARROWS[key]!) },
    { keys: ["+", "="], shown: "+", does: "zoom in", run: () => navigation.zoom(1) },
    { keys: ["-", "_"], shown: "−", does: "zoom out", run: () => navigation.zoom(-1) },
    { keys: numbers, shown: `1 to ${numbers.length}`, does: `zoom to ${MAGNIFICATIONS.join("×, ")}×`, run: ({ key }) => viewer.magnify(MAGNIFICATIONS[Number(key) - 1]!) },
    { keys: ["0", "Home"], shown: "0 or Home", does: "show the whole slide", run: () => viewer.showWhole() },
    ...(viewer.focus
      ? [
          { keys: ["PageUp"], shown: "Page Up", does: "focus up: the next higher focal plane", run: () => viewer.focus?.step(1) },
          { keys: ["PageDown"], shown: "Page Down", does: "focus down: the next lower focal plane", run: () => viewer.focus?.step(-1) },
        ]
      : []),
    { keys: ["t"], shown: "t", does: "rotate clockwise by 90°", run: () => viewer.turn(90) },
    { keys: ["T"], shown: "Shift + t", does: "rotate anticlockwise by 90°", run: () => viewer.turn(-90) },
    { keys: [">", "<"], shown: "> and <", does: `rotate clockwise and anticlockwise by ${FINE_DEGREES}°`, run: ({ key }) => viewer.turn(key === ">" ? FINE_DEGREES : -FINE_DEGREES) },
    { keys: ["v"], shown: "v", does: "flip horizontally", run: () => viewer.mirror() },
    { keys: ["V"], shown: "Shift + v", does: "reset rotation and flip", run: () => viewer.setUpright() },
  ];
}

function overlays(viewer: Viewer): Command[] {
  const { layerPanel } = viewer;
  return [
    { keys: ["n"], shown: "n", does: "next hotspot", run: () => viewer.nextHotspot(1) },
    { keys: ["p"], shown: "p", does: "previous hotspot", run: () => viewer.nextHotspot(-1) },
    { keys: ["y"], shown: "y", does: "accept this hotspot; again: undo", run: () => viewer.hotspotList.accept() },
    { keys: ["z"], shown: "z", does: "reject this hotspot; again: undo", run: () => viewer.hotspotList.reject() },
    { keys: ["u"], shown: "u", does: "show or hide the veil over areas not yet seen", run: () => viewer.coverage?.toggle() },
    { keys: ["o"], shown: "o", does: "show or hide the prediction", run: () => layerPanel.toggleFirst() },
    { keys: ["["], shown: "[", does: "lower the threshold", run: () => layerPanel.step("threshold", -STEP) },
    { keys: ["]"], shown: "]", does: "raise the threshold", run: () => layerPanel.step("threshold", STEP) },
    { keys: ["{"], shown: "{", does: "decrease the opacity", run: () => layerPanel.step("opacity", -STEP) },
    { keys: ["}"], shown: "}", does: "increase the opacity", run: () => layerPanel.step("opacity", STEP) },
  ];
}

function tools(viewer: Viewer): Command[] {
  return [
    { keys: ["Enter"], shown: "Enter", does: "set a point of the tool at the centre of the screen; without a tool, show the model's result there", run: () => viewer.hand.pressMiddle() },
    { keys: ["Backspace"], shown: "Backspace", does: viewer.beside ? "remove the tool's last point; without a tool, go back to the list" : "remove the tool's last point", run: () => viewer.hand.undo() || (viewer.beside && backToList(viewer.data.slide.slide_id)) },
    { keys: ["Delete"], shown: "Delete", does: "delete the selection", run: () => viewer.hand.delete() },
    { keys: ["Escape"], shown: "Esc", does: "leave the tool", run: () => viewer.hand.layDown() },
  ];
}

/** Keys that the questions of a reading handle themselves. */
function reading(viewer: Viewer): Command[] {
  const keys = viewer.data.link_parameter === undefined ? [] : READING_KEYS;
  return keys.map(([shown, does]) => ({ keys: [], shown, does, run: () => undefined }));
}

function pages(viewer: Viewer): Command[] {
  return [
    { keys: ["i"], shown: "i", does: "brightness, contrast, gamma and colours", run: () => viewer.adjustImage() },
    { keys: ["I"], shown: "Shift + i", does: "reset the image", run: () => viewer.image.reset() },
    { keys: ["k"], shown: "k", does: "switch between colours as scanned and corrected with the scanner's profile", run: () => viewer.image.toggleColours() },
    { keys: ["b"], shown: "b", does: "show or hide the panel", run: () => viewer.togglePanel() },
    { keys: ["f"], shown: "f", does: "full screen; Esc to leave", run: () => viewer.fullScreen() },
    { keys: ["?"], shown: "?", does: "show this list", run: () => viewer.listKeys() },
    { keys: [], shown: "Gamepad", does: BUTTON_NAMES, run: () => undefined },
  ];
}
