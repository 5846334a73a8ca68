// List of the slide's classes with counts, colours and visibility.
import { box, checkbox } from "../../panel/elements";
import type { Summary } from "../types";

const WITHOUT = "(no class)";
const COLOUR_WITHOUT = "#5f6570";

export class ClassList {
  readonly element = box("classes");
  private readonly hidden = new Set<string | null>();
  private readonly colours = new Map<string, string>();
  private palette: string[] = [];
  private isOff = false;
  private shown = "";

  constructor(private readonly changed: () => void) {
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "Visible classes");
  }

  /** "#rrggbb" of a class, visible or not. */
  colour(name: string | null): string {
    if (name === null) {
      return COLOUR_WITHOUT;
    }
    const colour = this.colours.get(name) ?? `#${this.palette[this.colours.size % Math.max(1, this.palette.length)] ?? "0072b2"}`;
    this.colours.set(name, colour); // for a newly created class
    return colour;
  }

  isSeen(name: string | null): boolean {
    return !this.isOff && !this.hidden.has(name);
  }

  toggleAll(): void {
    this.isOff = !this.isOff;
    this.changed();
    this.shown = "";
  }

  get isAllOff(): boolean {
    return this.isOff;
  }

  update({ classes, without_class, palette }: Summary): void {
    this.palette = palette;
    classes.forEach(([name, , colour]) => this.colours.set(name, `#${colour}`));
    const rows: [string | null, number][] = classes.filter(([, count]) => count).map(([name, count]) => [name, count]);
    if (without_class) {
      rows.push([null, without_class]);
    }
    const text = JSON.stringify([rows, [...this.hidden], this.isOff]);
    if (text !== this.shown) {
      this.shown = text;
      this.element.replaceChildren(this.all(rows), ...rows.map(([name, count]) => this.row(name, count)));
    }
  }

  private all(rows: [string | null, number][]): HTMLElement {
    const total = rows.reduce((sum, [, count]) => sum + count, 0);
    const text = `All annotations (${total.toLocaleString("en")})`;
    return checkbox(text, "Show annotations", !this.isOff, (isOn) => {
      this.isOff = !isOn;
      this.changed();
    });
  }

  private row(name: string | null, count: number): HTMLElement {
    const swatch = box("swatch");
    swatch.style.background = this.colour(name);
    const label = checkbox("", `Show ${name ?? "annotations without a class"}`, !this.hidden.has(name), (isOn) => {
      this.hidden[isOn ? "delete" : "add"](name);
      this.changed();
    });
    label.append(swatch, `${name ?? WITHOUT} (${count.toLocaleString("en")})`);
    return label;
  }
}
