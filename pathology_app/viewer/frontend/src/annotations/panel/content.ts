// The annotations section of the panel: tools, class and note, classes on the slide, and the saved state.
import { box, button, labelled, slider, toggle } from "../../panel/elements";
import type { ToolChoice } from "../annotating";
import { ClassList } from "./class_list";
import { ClassMenu } from "./class_menu";
import type { Editor } from "../editor";
import { FoundList } from "./found_list";
import type { Model } from "../storage/model";
import { sizeText } from "../drawing/sizes";
import type { AnnotationApi } from "../storage/api";
import type { Annotation } from "../types";
import { Thread } from "./thread";
import { timeText } from "./time";

export interface PanelActions {
  /** A tool's button: take it, or put it away. */
  pressButton(tool: ToolChoice): void;
  join(): void;
  readonly pointing: { delete(): boolean };
  undo(): void;
  redo(): void;
  find(words: string): Promise<Annotation[]>;
  goTo(annotation: Annotation): void;
  importFile(file: File): void;
  openTable(): void;
}

const TOOLS: [ToolChoice, string, string][] = [
  ["select", "Select", "Select, move and edit (s)"],
  ["point", "Point", "Point (d)"],
  ["rectangle", "Rectangle", "Rectangle (r)"],
  ["ellipse", "Ellipse", "Ellipse (e)"],
  ["polygon", "Polygon", "Polygon (g)"],
  ["freehand", "Freehand", "Freehand (w)"],
  ["line", "Line", "Line (l)"],
  ["arrow", "Arrow", "Arrow (h)"],
  ["text", "Text", "Text (t)"],
  ["brush", "Brush", "Paint an area, or add to the selected one (b)"],
  ["eraser", "Eraser", "Paint over the part of the selected area to remove (Shift + b)"],
  ["wand", "Wand", "Fill tissue of a similar stain (z)"],
  ["split", "Split", "Split the selected area along a line (x)"],
];

/** Radius of the brush, smallest and largest, on the screen. */
const BRUSH_PX = [3, 90] as const;
const [BRUSH_SIZE, SIMILARITY] = [0.4, 0.7];

export class AnnotationPanel {
  readonly element = box("annotations");
  readonly classes: ClassList;
  readonly classMenu: ClassMenu;
  readonly found: FoundList;
  private readonly tools = new Map<ToolChoice, HTMLButtonElement>();
  private readonly state = box("state");
  private readonly message = box("message");
  private readonly facts = box("about");
  private readonly note = document.createElement("textarea");
  private readonly chosen: HTMLDivElement;
  private readonly buttons: Record<"join" | "delete" | "undo" | "redo", HTMLButtonElement>;
  private readonly controls: HTMLDivElement;
  private readonly importing = box("");
  private readonly exportLink = document.createElement("a");
  private readonly thread: Thread;
  private readonly options: HTMLDivElement;
  private readonly brushSize = slider("Size", "Size of the brush", () => undefined);
  private readonly similarity = slider("Similarity", "Similarity of stain that the wand requires", () => undefined);
  private shownNote = "";

  constructor(
    private readonly actions: PanelActions,
    private readonly editor: Editor,
    private readonly model: Model,
    api: AnnotationApi,
    private readonly mpp0: number,
    classesChanged: () => void,
  ) {
    this.classes = new ClassList(classesChanged);
    this.classMenu = new ClassMenu((name) => this.editor.classify(name));
    this.found = new FoundList((words) => actions.find(words), (annotation) => actions.goTo(annotation));
    for (const [tool, text, title] of TOOLS) {
      this.tools.set(tool, toggle(text, title, () => actions.pressButton(tool)));
    }
    this.buttons = {
      join: button("Join", "Join the selected areas into one (j)", () => actions.join()),
      delete: button("Delete", "Delete the selection (Delete)", () => actions.pointing.delete()),
      undo: button("Undo", "Undo (Ctrl + z)", () => actions.undo()),
      redo: button("Redo", "Redo (Ctrl + Shift + z)", () => actions.redo()),
    };
    this.note.rows = 2;
    this.note.maxLength = 2000;
    this.note.addEventListener("change", () => this.editor.note(this.note.value));
    this.thread = new Thread(api, model, (parent, text) => editor.reply(parent, text));
    this.chosen = box("chosen", this.facts, labelled("Note", this.note));
    this.options = box("group options", this.brushSize.element, this.similarity.element);
    this.brushSize.show(BRUSH_SIZE);
    this.similarity.show(SIMILARITY);
    this.controls = box(
      "controls",
      box("group tools", ...this.tools.values()),
      box("group", ...Object.values(this.buttons)),
      this.options,
      this.classMenu.element,
      this.chosen,
    );
    this.state.setAttribute("role", "status");
    this.message.setAttribute("role", "alert");
    this.exportLink.href = api.exportLink;
    this.exportLink.download = "";
    this.exportLink.className = "button";
    this.exportLink.textContent = "Export";
    this.exportLink.title = "As GeoJSON, with measurements, for QuPath";
    this.importing.append(this.fileButton());
    const table = button("Table", "All annotations of this slide, sorted and filtered (#)", () => actions.openTable());
    this.element.append(this.state, this.message, this.controls, this.thread.element, this.classes.element, this.found.element, box("group", table, this.importing, this.exportLink));
  }

  /** Show a message until the next one. */
  say(text: string): void {
    this.message.textContent = text;
  }

  get said(): string {
    return this.message.textContent ?? "";
  }

  focusClass(): void {
    this.classMenu.focus();
  }

  focusNote(): void {
    this.note.focus();
  }

  /** Radius of the brush on the screen. */
  get brush_px(): number {
    return BRUSH_PX[0] + this.brushSize.input.valueAsNumber ** 2 * (BRUSH_PX[1] - BRUSH_PX[0]);
  }

  /** Of the wand, 0 to 1. */
  get tolerance(): number {
    return 1 - this.similarity.input.valueAsNumber;
  }

  /** @param change the slide's counter. */
  show(tool: ToolChoice | null, state: string, isSaved: boolean, mayAnnotate: boolean, mayExport: boolean, change: number): void {
    for (const [name, element] of this.tools) {
      element.setAttribute("aria-pressed", String(name === tool));
    }
    if (this.state.textContent !== state) {
      this.state.textContent = state;
    }
    this.state.classList.toggle("waits", !isSaved);
    this.controls.hidden = this.importing.hidden = !mayAnnotate;
    this.exportLink.hidden = !mayExport;
    this.brushSize.element.hidden = tool !== "brush" && tool !== "eraser";
    this.similarity.element.hidden = tool !== "wand";
    this.options.hidden = this.brushSize.element.hidden && this.similarity.element.hidden;
    const { last } = this.editor;
    this.thread.show(last !== null && this.model.saved(last) ? last : null, change, mayAnnotate);
    this.showChosen();
  }

  private showChosen(): void {
    const { chosen, lastContent, history } = this.editor;
    this.chosen.hidden = lastContent === null;
    this.buttons.join.disabled = chosen.length < 2;
    this.buttons.delete.disabled = chosen.length === 0;
    this.buttons.undo.disabled = history.undoes === null;
    this.buttons.redo.disabled = history.redoes === null;
    this.classMenu.show(lastContent ? lastContent.class : this.editor.className);
    if (!lastContent) {
      return;
    }
    const saved = this.model.saved(this.editor.last!);
    const lines = [
      chosen.length > 1 ? `${chosen.length} selected; the last one:` : "",
      `${lastContent.kind}, ${sizeText(lastContent.geometry, this.mpp0)}`,
      saved ? `drawn by ${saved.author}, ${timeText(saved.made_utc)}` : "not saved yet",
      saved && saved.revision > 1 ? `changed by ${saved.changed_by}, ${timeText(saved.changed_utc)}` : "",
    ];
    const text = lines.filter(Boolean).join("\n");
    if (this.facts.textContent !== text) {
      this.facts.textContent = text;
    }
    const key = `${this.editor.last}\n${lastContent.note}`;
    if (key !== this.shownNote) {
      [this.note.value, this.shownNote] = [lastContent.note, key];
    }
  }

  private fileButton(): HTMLElement {
    const input = document.createElement("input");
    [input.type, input.accept, input.hidden] = ["file", ".geojson,.json,.xml", true];
    input.addEventListener("change", () => {
      const file = input.files?.[0];
      if (file) {
        this.actions.importFile(file);
      }
      input.value = "";
    });
    return box("", button("Import", "A file from QuPath, ASAP or ImageScope", () => input.click()), input);
  }
}
