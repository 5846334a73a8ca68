// Keys of annotations. Letters select tools only while annotating; otherwise they keep their usual meaning.
import type { Command } from "../controls/keys";
import type { Annotating, Surroundings, ToolChoice } from "./annotating";
import { cornerAt } from "./drawing/shapes";

const TOOLS: [string, ToolChoice, string][] = [
  ["s", "select", "select"],
  ["d", "point", "point"],
  ["r", "rectangle", "rectangle"],
  ["e", "ellipse", "ellipse"],
  ["g", "polygon", "polygon"],
  ["w", "freehand", "freehand"],
  ["l", "line", "line"],
  ["h", "arrow", "arrow"],
  ["t", "text", "text"],
  ["b", "brush", "brush"],
  ["B", "eraser", "eraser"],
  ["z", "wand", "wand"],
  ["x", "split", "split the selected area"],
];
const ARROWS: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const [STEP_PX, FAR_PX] = [1, 10];
const TYPED_INTO = "input:not([type=range], [type=checkbox], [type=radio]), textarea, select, [contenteditable], [role=combobox]";

/** Entries for the list of keys; `keyPressed` handles most of them. */
export function annotationCommands(annotations: Annotating): Command[] {
  const none = (): void => undefined;
  return [
    { keys: ["m"], shown: "m", does: "ruler: click, or press Enter to use the centre of the screen", run: () => annotations.take("ruler") },
    { keys: ["M"], shown: "Shift + m", does: "measure an area", run: () => annotations.take("area") },
    { keys: ["c"], shown: "c", does: "count in a circle of 1 mm²; again: 2 mm², an area, another count. 1 to 9 choose the class", run: () => annotations.count() },
    { keys: ["a"], shown: "a", does: "start or stop annotating", run: () => annotations.toggleAnnotating() },
    { keys: ["A"], shown: "Shift + a", does: "show or hide annotations", run: () => annotations.toggleShown() },
    { keys: ["*"], shown: "*", does: "bookmark this view", run: () => annotations.bookmark() },
    { keys: ["#"], shown: "#", does: "table of annotations", run: () => annotations.openTable() },
    { keys: [], shown: TOOLS.map(([key]) => key).join(", "), does: `while annotating: ${TOOLS.map(([, , name]) => name).join(", ")}; Enter sets a point at the centre of the screen`, run: none },
    { keys: [], shown: "j, k, i", does: "while annotating: join the selected areas, edit the class, edit the note", run: none },
    { keys: [], shown: "Page up and down", does: "while annotating: previous and next corner of the selection; Insert adds a corner, Delete removes it", run: none },
    { keys: [], shown: "Alt + arrows", does: "while annotating: move the corner, or else the selection, or else the slide, by one pixel; with Shift, by ten", run: none },
    { keys: [], shown: "Ctrl + z, Ctrl + Shift + z", does: "undo and redo annotations", run: none },
  ];
}

/** Handle a key of annotations, before the viewer's own keys. */
export function keyPressed(event: KeyboardEvent, annotations: Annotating, around: Surroundings): void {
  const target = event.composedPath()[0];
  const isTyped = target instanceof Element && target.matches(TYPED_INTO);
  if (!around.stage.isConnected || !around.isActive() || event.defaultPrevented || isTyped) {
    return;
  }
  if (withControl(event, annotations) || withAlt(event, annotations, around) || alone(event, annotations)) {
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}

function withControl(event: KeyboardEvent, annotations: Annotating): boolean {
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

function withAlt(event: KeyboardEvent, annotations: Annotating, around: Surroundings): boolean {
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

function alone(event: KeyboardEvent, annotations: Annotating): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || annotations.inHand === null) {
    return false;
  }
  if (/^[1-9]$/.test(event.key) && annotations.chooseCounted(Number(event.key))) {
    return true;
  }
  if (!annotations.isDrawing) {
    return false; // while measuring, letters keep their usual meaning
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

/** Add a corner halfway to the next one. */
function addCorner({ editor }: Annotating): void {
  const [corner, content] = [editor.corner, editor.lastContent];
  if (!corner || !content) {
    return;
  }
  const here = cornerAt(content.geometry, corner)!;
  const next = cornerAt(content.geometry, { ...corner, index: corner.index + 1 }) ?? cornerAt(content.geometry, { ...corner, index: 0 })!;
  editor.addCorner(corner, { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 });
}
