// Keys of annotations. Letters mean tools only while one is in hand: elsewhere they keep what they mean.
import type { Command } from "../keys";
import type { Annotations, Surroundings, ToolChoice } from "./annotations";
import { cornerAt } from "./shapes";

const TOOLS: [string, ToolChoice, string][] = [
  ["s", "select", "select"],
  ["d", "point", "point"],
  ["r", "rectangle", "rectangle"],
  ["e", "ellipse", "ellipse"],
  ["g", "polygon", "polygon"],
  ["w", "freehand", "freehand"],
  ["x", "split", "split the chosen area"],
];
const ARROWS: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const [STEP_PX, FAR_PX] = [1, 10];
const TYPED_INTO = "input:not([type=range], [type=checkbox], [type=radio]), textarea, select, [contenteditable], [role=combobox]";

/** For the list of keys; what they do is below. */
export function annotationCommands(annotations: Annotations): Command[] {
  const none = (): void => undefined;
  return [
    { keys: ["a"], shown: "a", does: "annotate, and no more", run: () => annotations.take(annotations.inHand ?? "select") },
    { keys: ["A"], shown: "Shift + a", does: "annotations on or off", run: () => annotations.toggleShown() },
    { keys: [], shown: TOOLS.map(([key]) => key).join(", "), does: `while annotating: ${TOOLS.map(([, , name]) => name).join(", ")}; Enter sets a point at the middle`, run: none },
    { keys: [], shown: "j, k, i", does: "while annotating: join those chosen, class, note", run: none },
    { keys: [], shown: "Page up and down", does: "while annotating: corners of what is chosen; Insert adds one, Delete takes it out", run: none },
    { keys: [], shown: "Alt + arrows", does: "while annotating: move the corner, else what is chosen, else the slide, by a pixel; Shift: by ten", run: none },
    { keys: [], shown: "Ctrl + z, Ctrl + Shift + z", does: "annotations: undo, redo", run: none },
  ];
}

/** Carry out a key that means something while annotating; before the viewer's own keys. */
export function keyPressed(event: KeyboardEvent, annotations: Annotations, around: Surroundings): void {
  const target = event.composedPath()[0];
  const isTyped = target instanceof Element && target.matches(TYPED_INTO);
  if (!around.stage.isConnected || event.defaultPrevented || isTyped) {
    return;
  }
  if (withControl(event, annotations) || withAlt(event, annotations, around) || alone(event, annotations)) {
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}

function withControl(event: KeyboardEvent, annotations: Annotations): boolean {
  const key = event.key.toLowerCase();
  if (!(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key)) {
    return false;
  }
  if (key === "y" || event.shiftKey) {
    annotations.redo();
  } else {
    annotations.undo();
  }
  return true;
}

function withAlt(event: KeyboardEvent, annotations: Annotations, around: Surroundings): boolean {
  const arrow = ARROWS[event.key];
  if (!event.altKey || event.ctrlKey || event.metaKey || !arrow || !annotations.inHand) {
    return false;
  }
  const step = event.shiftKey ? FAR_PX : STEP_PX;
  const [right, down] = [arrow[0] * step, arrow[1] * step];
  const transform = around.transform();
  const [from, to] = [transform.toSlide({ x: 0, y: 0 }), transform.toSlide({ x: right, y: down })];
  const by = { x: to.x - from.x, y: to.y - from.y };
  const { editor } = annotations;
  const content = editor.lastContent;
  if (editor.corner && content) {
    const at = cornerAt(content.geometry, editor.corner)!;
    editor.moveCorner(editor.corner, { x: at.x + by.x, y: at.y + by.y });
  } else if (content && annotations.inHand === "select") {
    editor.moveBy(by);
  } else {
    around.panBy(right, down);
  }
  return true;
}

function alone(event: KeyboardEvent, annotations: Annotations): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || annotations.inHand === null) {
    return false;
  }
  const tool = TOOLS.find(([key]) => key === event.key);
  if (tool) {
    annotations.take(tool[1]);
    return true;
  }
  const { editor, panel } = annotations;
  const others: Record<string, () => void> = {
    j: () => annotations.join(),
    k: () => panel.focusClass(),
    i: () => panel.focusNote(),
    PageDown: () => editor.nextCorner(1),
    PageUp: () => editor.nextCorner(-1),
    Insert: () => addCorner(annotations),
  };
  others[event.key]?.();
  return event.key in others;
}

/** Halfway to the next corner. */
function addCorner({ editor }: Annotations): void {
  const [corner, content] = [editor.corner, editor.lastContent];
  if (!corner || !content) {
    return;
  }
  const here = cornerAt(content.geometry, corner)!;
  const next = cornerAt(content.geometry, { ...corner, index: corner.index + 1 }) ?? cornerAt(content.geometry, { ...corner, index: 0 })!;
  editor.addCorner(corner, { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 });
}
