// The section "Counts" of the panel: what is counted, the numbers by class, and all counts of the slide.
import { box, button, labelled, toggle } from "../../panel/elements";
import { areasText, percent, perMm2Text } from "../drawing/sizes";
import type { ClassTally, CountTally } from "../types";
import { type CountClasses, PRESETS } from "./classes";
import type { Counter, CountShape } from "./counter";

const SHAPES: [CountShape, string, string][] = [
  [1, "1 mm²", "Count in a circle of 1 mm² (c)"],
  [2, "2 mm²", "Count in a circle of 2 mm² (c twice)"],
  ["area", "Area", "Count in an area that you draw (c three times)"],
];

export interface CountPanelActions {
  /** Take the counting tool for a new count. */
  begin(shape: CountShape): void;
  /** Go on with a count, and show it. */
  goOn(id: string): void;
  chooseClass(number: number): void;
  useClasses(names: readonly string[]): void;
  addClass(name: string): void;
  colourOf(name: string): string;
}

export class CountPanel {
  readonly element = box("counts");
  private readonly controls: HTMLElement;
  private readonly shapes = new Map<CountShape, HTMLButtonElement>();
  private readonly numbers = box("numbers");
  private readonly list = document.createElement("ul");
  private readonly exportLink = document.createElement("a");
  private shown = "";

  constructor(
    private readonly counter: Counter,
    private readonly classes: CountClasses,
    private readonly actions: CountPanelActions,
    exportLink: string,
  ) {
    for (const [shape, text, title] of SHAPES) {
      this.shapes.set(shape, toggle(text, title, () => actions.begin(shape)));
    }
    this.controls = box("controls", box("group", "New count:", ...this.shapes.values()), this.classMenu());
    this.list.setAttribute("aria-label", "Counts of this slide");
    this.exportLink.className = "button";
    this.exportLink.textContent = "Export";
    this.exportLink.title = "All counts as a table (CSV)";
    this.exportLink.href = exportLink;
    this.exportLink.download = "";
    this.element.append(this.controls, this.numbers, this.list, box("group", this.exportLink));
  }

  show(isInHand: boolean, mayCount: boolean, mayExport: boolean): void {
    const { active, all, total } = this.counter;
    const text = JSON.stringify([isInHand, mayCount, mayExport, active, all, total, this.classes.names, this.classes.current, this.counter.shape]);
    if (text === this.shown) {
      return;
    }
    this.shown = text;
    this.controls.hidden = !mayCount;
    this.exportLink.hidden = !mayExport || !all.length;
    this.shapes.forEach((element, shape) => element.setAttribute("aria-pressed", String(isInHand && !active && shape === this.counter.shape)));
    this.numbers.replaceChildren(...(active || isInHand ? this.active(active) : []));
    this.list.replaceChildren(...all.map((tally) => this.row(tally)), ...(total ? [this.totalRow(total)] : []));
  }

  private active(tally: CountTally | null): HTMLElement[] {
    const title = box("title", tally ? `${tally.name}: ${areasText(tally)}` : "Not placed yet");
    const parts = [title, this.table(tally)];
    if (tally?.outside) {
      parts.push(box("warning", `${tally.outside.toLocaleString("en")} outside its area, not counted.`));
    }
    return parts;
  }

  private table(tally: CountTally | null): HTMLElement {
    const table = document.createElement("table");
    const others = (tally?.classes ?? []).map(({ class_name }) => class_name).filter((name) => !this.classes.names.includes(name));
    const head = table.createTHead().insertRow();
    for (const text of ["Key", "Class", "Number", "Share"]) {
      const cell = document.createElement("th");
      [cell.scope, cell.textContent] = ["col", text];
      head.append(cell);
    }
    const body = table.createTBody();
    [...this.classes.names, ...others].forEach((name, index) => {
      const row = body.insertRow();
      const found = tally?.classes.find(({ class_name }) => class_name === name);
      row.insertCell().append(index < this.classes.names.length ? this.classButton(name, index) : "");
      row.insertCell().append(this.swatch(name), name, ...(found ? [box("detail", detailOf(found, tally!.tissue_mm2 !== null))] : []));
      row.insertCell().textContent = (found?.number ?? 0).toLocaleString("en");
      row.insertCell().textContent = found ? percent(found.share) : "–";
    });
    return table;
  }

  private classButton(name: string, index: number): HTMLElement {
    const element = toggle(String(index + 1), `Count ${name} (${index + 1})`, () => this.actions.chooseClass(index + 1));
    element.setAttribute("aria-pressed", String(name === this.classes.current));
    return element;
  }

  private swatch(name: string): HTMLElement {
    const swatch = box("swatch");
    swatch.style.background = this.actions.colourOf(name);
    return swatch;
  }

  private row(tally: CountTally): HTMLElement {
    const item = document.createElement("li");
    const numbers = tally.classes.map(({ class_name, number }) => `${class_name} ${number.toLocaleString("en")}`).join(", ") || "nothing counted";
    const go = button(`${tally.name}: ${numbers}`, `Go on with this count; by ${tally.author}`, () => this.actions.goOn(tally.id!));
    go.setAttribute("aria-current", String(tally.id === this.counter.activeId));
    item.append(go);
    return item;
  }

  private totalRow(tally: CountTally): HTMLElement {
    const item = document.createElement("li");
    const numbers = tally.classes.map(({ class_name, number, per_mm2 }) => `${class_name} ${number.toLocaleString("en")} (${perMm2Text(per_mm2)} per mm²)`);
    item.textContent = `All counts, ${areasText(tally)}: ${numbers.join(", ") || "nothing counted"}`;
    return item;
  }

  private classMenu(): HTMLElement {
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Classes to count");
    select.append(new Option("Classes to count…", ""), ...PRESETS.map(([name, classes]) => new Option(`${name}: ${classes.join(", ")}`, name)));
    select.addEventListener("change", () => {
      const preset = PRESETS.find(([name]) => name === select.value);
      if (preset) {
        this.actions.useClasses(preset[1]);
      }
      select.value = "";
    });
    const input = document.createElement("input");
    [input.type, input.maxLength, input.placeholder] = ["text", 100, "another class"];
    input.addEventListener("change", () => {
      const name = input.value.trim();
      input.value = "";
      if (name) {
        this.actions.addClass(name);
      }
    });
    return box("group class-choice", select, labelled("Add", input));
  }
}

/** "95 % CI 23.1 to 88.2 %; 52 per mm² scanned, 61 per mm² tissue" */
function detailOf({ share_low, share_high, per_mm2, per_mm2_tissue }: ClassTally, hasTissue: boolean): string {
  const tissue = hasTissue ? `, ${perMm2Text(per_mm2_tissue)} per mm² tissue` : "";
  return `95 % CI ${percent(share_low)} to ${percent(share_high)}; ${perMm2Text(per_mm2)} per mm² scanned${tissue}`;
}
