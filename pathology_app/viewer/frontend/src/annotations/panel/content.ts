// The annotations section of the panel: tools, class and note, classes on the slide, and the saved state.
import { box, button, labelled, toggle } from "../../panel/elements";
import type { ToolChoice } from "../annotating";
import { ClassList } from "./class_list";
import { ClassMenu } from "./class_menu";
import type { Editor } from "../editor";
import { FoundList } from "./found_list";
import type { Model } from "../storage/model";
import { sizeText } from "../drawing/shapes";
import type { Annotation } from "../types";

export interface PanelActions {
  take(tool: ToolChoice): void;
  join(): void;
  delete(): void;
  undo(): void;
  redo(): void;
  find(words: string): Promise<Annotation[]>;
  goTo(annotation: Annotation): void;
  importFile(file: File): void;
}

const TOOLS: [ToolChoice, string, string][] = [
  ["select", "Select", "Select, move and edit (s)"],
  ["point", "Point", "Point (d)"],
  ["rectangle", "Rectangle", "Rectangle (r)"],
  ["ellipse", "Ellipse", "Ellipse (e)"],
  ["polygon", "Polygon", "Polygon (g)"],
  ["freehand", "Freehand", "Freehand (w)"],
  ["split", "Split", "Split the selected area along a line (x)"],
];

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
  private shownNote = "";

  constructor(
    private readonly actions: PanelActions,
    private readonly editor: Editor,
    private readonly model: Model,
    private readonly mpp0: number,
    classesChanged: () => void,
    exportLink: string,
  ) {
    this.classes = new ClassList(classesChanged);
    this.classMenu = new ClassMenu((name) => this.editor.classify(name));
    this.found = new FoundList((words) => actions.find(words), (annotation) => actions.goTo(annotation));
    for (const [tool, text, title] of TOOLS) {
      this.tools.set(tool, toggle(text, title, () => actions.take(tool)));
    }
    this.buttons = {
      join: button("Join", "Join the selected areas into one (j)", () => actions.join()),
      delete: button("Delete", "Delete the selection (Delete)", () => actions.delete()),
      undo: button("Undo", "Undo (Ctrl + z)", () => actions.undo()),
      redo: button("Redo", "Redo (Ctrl + Shift + z)", () => actions.redo()),
    };
    this.note.rows = 2;
    this.note.maxLength = 2000;
    this.note.addEventListener("change", () => this.editor.note(this.note.value));
    this.chosen = box("chosen", this.facts, labelled("Note", this.note));
    this.controls = box(
      "controls",
      box("group tools", ...this.tools.values()),
      box("group", ...Object.values(this.buttons)),
      this.classMenu.element,
      this.chosen,
    );
    this.state.setAttribute("role", "status");
    this.message.setAttribute("role", "alert");
    this.exportLink.href = exportLink;
    this.exportLink.download = "";
    this.exportLink.className = "button";
    this.exportLink.textContent = "Export";
    this.exportLink.title = "As GeoJSON, for QuPath";
    this.importing.append(this.fileButton());
    this.element.append(this.state, this.message, this.controls, this.classes.element, this.found.element, box("group", this.importing, this.exportLink));
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

  show(tool: ToolChoice | null, state: string, isSaved: boolean, mayAnnotate: boolean, mayExport: boolean): void {
    for (const [name, element] of this.tools) {
      element.setAttribute("aria-pressed", String(name === tool));
    }
    if (this.state.textContent !== state) {
      this.state.textContent = state;
    }
    this.state.classList.toggle("waits", !isSaved);
    this.controls.hidden = this.importing.hidden = !mayAnnotate;
    this.exportLink.hidden = !mayExport;
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

function timeText(utc: string): string {
  const time = new Date(utc);
  return Number.isNaN(time.valueOf()) ? utc : time.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
