// Keyboard commands of slides shown side by side: those of the view that was pressed last.
import { annotationCommands } from "../annotations/keys";
import type { Command } from "../controls/keys";
import { MAGNIFICATIONS } from "../view/navigation";
import type { ComparePane } from "./pane";
import type { CompareActions } from "./toolbar";

const ARROWS: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export interface CompareKeys extends CompareActions {
  /** Move a view; the others follow. */
  move(change: (pane: ComparePane) => void): void;
  /** Choose another slide. */
  add(): void;
  /** Make the next view the one that keys are for. */
  nextPane(): void;
  /** Stop aligning. False if that was not going on. */
  stopRegistering(): boolean;
}

export function compareCommands(pane: ComparePane, actions: CompareKeys): Command[] {
  const arrows = Object.keys(ARROWS);
  const { annotations, hand } = pane;
  const numbers = MAGNIFICATIONS.map((_, index) => String(index + 1));
  return [
    { keys: arrows, shift: false, shown: "Arrows", does: "move a little", run: ({ key }) => actions.move(({ navigation }) => navigation.nudge(...ARROWS[key]!)) },
    { keys: arrows, shift: true, shown: "Shift + arrows", does: "move to the next field of view", run: ({ key }) => actions.move(({ navigation }) => navigation.nextField(...ARROWS[key]!)) },
    { keys: ["+", "="], shown: "+", does: "zoom in", run: () => actions.move(({ navigation }) => navigation.zoom(1)) },
    { keys: ["-", "_"], shown: "−", does: "zoom out", run: () => actions.move(({ navigation }) => navigation.zoom(-1)) },
    { keys: numbers, shown: `1 to ${numbers.length}`, does: `zoom to ${MAGNIFICATIONS.join("×, ")}×`, run: ({ key }) => actions.magnify(MAGNIFICATIONS[Number(key) - 1]!) },
    { keys: ["0", "Home"], shown: "0 or Home", does: "show the whole slide", run: () => actions.whole() },
    { keys: ["t"], shown: "t", does: "rotate clockwise by 90°", run: () => actions.turn(90) },
    { keys: ["T"], shown: "Shift + t", does: "rotate anticlockwise by 90°", run: () => actions.turn(-90) },
    { keys: ["v"], shown: "v", does: "flip horizontally", run: () => actions.mirror() },
    { keys: ["w"], shown: "w", does: "next view: keys and tools are for it", run: () => actions.nextPane() },
    { keys: ["s"], shown: "s", does: "add a slide", run: () => actions.add() },
    { keys: ["g"], shown: "g", does: "align the slides: click the same two points in every view", run: () => actions.register() },
    { keys: ["Enter"], shown: "Enter", does: "set a point at the centre of the view", run: () => hand.pressMiddle() },
    { keys: ["Backspace"], shown: "Backspace", does: "remove the tool's last point", run: () => hand.undo() },
    { keys: ["Delete"], shown: "Delete", does: "delete the selection", run: () => hand.delete() },
    { keys: ["Escape"], shown: "Esc", does: "leave the tool", run: () => actions.stopRegistering() || hand.layDown() },
    ...annotationCommands(annotations),
    { keys: ["b"], shown: "b", does: "show or hide the panel", run: () => actions.togglePanel() },
    { keys: ["?"], shown: "?", does: "show this list", run: () => actions.listKeys() },
  ];
}
