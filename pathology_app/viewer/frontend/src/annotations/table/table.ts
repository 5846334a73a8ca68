// The table of a slide's annotations: sorted and filtered by the server, a hundred rows at a time; a row goes there.
import { box, button, labelled } from "../../panel/elements";
import { areaText, lengthText } from "../../view/scale_bar";
import { mm2Text } from "../drawing/sizes";
import { timeText } from "../panel/time";
import { type AnnotationApi, Refused, type TablePage, type TableRow } from "../storage/api";

const KINDS = ["point", "line", "rectangle", "ellipse", "polygon", "freehand", "ruler", "area", "arrow", "text", "count", "bookmark"];
const COLUMNS: [string, string][] = [
  ["class", "Class"], ["kind", "Kind"], ["area", "Area"], ["length", "Length"], ["inside", "Points inside"], ["author", "Author"], ["time", "Changed"],
];
const AT_ONCE = 100;
const WAIT_MS = 250;
/** Columns that are sorted largest or latest first at the first click. */
const DOWN_FIRST = ["area", "length", "inside", "time"];

export class AnnotationTable {
  readonly element = box("annotation-table");
  private readonly words = document.createElement("input");
  private readonly kind = document.createElement("select");
  private readonly body = document.createElement("tbody");
  private readonly heads = new Map<string, HTMLTableCellElement>();
  private readonly summary = box("summary");
  private readonly exportLink = document.createElement("a");
  private readonly more: HTMLButtonElement;
  private sort = "time";
  private isDown = true;
  private className: string | null | undefined = undefined;
  private rows = 0;
  private requests = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly api: AnnotationApi,
    private readonly actions: { goTo(id: string): void },
  ) {
    this.element.hidden = true;
    this.element.setAttribute("role", "region");
    this.element.setAttribute("aria-label", "Table of annotations");
    [this.words.type, this.words.maxLength, this.words.placeholder] = ["search", 200, "class, note or name"];
    this.words.addEventListener("input", () => this.later());
    this.kind.append(new Option("all kinds", ""), ...KINDS.map((kind) => new Option(kind, kind)));
    this.kind.setAttribute("aria-label", "Kind");
    this.kind.addEventListener("change", () => void this.load());
    this.exportLink.className = "button";
    this.exportLink.textContent = "Export";
    this.exportLink.title = "As a table (CSV)";
    this.exportLink.download = "";
    this.more = button("More", "Show more rows", () => void this.load(true));
    const close = button("×", "Close the table (#)", () => this.toggle());
    this.element.append(box("bar", labelled("Filter", this.words), this.kind, this.summary, this.exportLink, close), box("scroll", this.table(), this.more));
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  toggle(): void {
    this.element.hidden = !this.element.hidden;
    if (this.isOpen) {
      void this.load();
      this.words.focus();
    }
  }

  /** Whether the table may be exported. */
  allowExport(mayExport: boolean): void {
    this.exportLink.hidden = !mayExport;
  }

  /** Load the rows again after a change on the slide, if the table is open. */
  refresh(): void {
    if (this.isOpen) {
      this.later();
    }
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.load(), WAIT_MS);
  }

  private table(): HTMLElement {
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const [key, title] of COLUMNS) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.append(button(title, `Sort by ${title.toLowerCase()}`, () => this.sortBy(key)));
      this.heads.set(key, cell);
      head.append(cell);
    }
    table.append(this.body);
    this.body.addEventListener("keydown", (event) => this.moveFocus(event));
    return table;
  }

  private sortBy(key: string): void {
    this.isDown = this.sort === key ? !this.isDown : DOWN_FIRST.includes(key);
    this.sort = key;
    void this.load();
  }

  private query(offset: number): URLSearchParams {
    const query = new URLSearchParams({ sort: this.sort, order: this.isDown ? "down" : "up", words: this.words.value.trim(), kind: this.kind.value });
    if (this.className === null) {
      query.set("unclassed", "1");
    } else if (this.className !== undefined) {
      query.set("class", this.className);
    }
    if (offset) {
      query.set("offset", String(offset));
    }
    query.set("most", String(AT_ONCE));
    return query;
  }

  private async load(isMore = false): Promise<void> {
    const request = ++this.requests;
    try {
      const page = await this.api.table(this.query(isMore ? this.rows : 0));
      if (request === this.requests) {
        this.show(page, isMore);
      }
    } catch (error) {
      if (!(error instanceof Refused)) {
        throw error;
      }
      this.summary.textContent = error.message;
    }
  }

  private show({ rows, total, measured, totals }: TablePage, isMore: boolean): void {
    const drawn = rows.map((row) => this.row(row));
    if (isMore) {
      this.body.append(...drawn);
    } else {
      this.body.replaceChildren(...drawn);
    }
    this.rows = (isMore ? this.rows : 0) + rows.length;
    this.more.hidden = this.rows >= measured;
    this.heads.forEach((cell, key) => cell.setAttribute("aria-sort", key !== this.sort ? "none" : this.isDown ? "descending" : "ascending"));
    const classes = totals.map(([name, number, area]) => this.classButton(name, `${name ?? "(no class)"} ${number.toLocaleString("en")}${area ? `, ${mm2Text(area)}` : ""}`));
    const left = measured < total ? ` Only the latest ${measured.toLocaleString("en")} are listed.` : "";
    const all = this.className === undefined ? [] : [button("all classes", "Show all classes", () => this.only(undefined))];
    this.summary.replaceChildren(`${total.toLocaleString("en")} ${total === 1 ? "annotation" : "annotations"}.${left} `, ...classes, ...all);
    this.exportLink.href = this.api.tableLink(this.query(0));
  }

  private classButton(name: string | null, text: string): HTMLElement {
    return button(text, `Only ${name ?? "annotations without a class"}`, () => this.only(name));
  }

  private only(name: string | null | undefined): void {
    this.className = name;
    void this.load();
  }

  private row(row: TableRow): HTMLTableRowElement {
    const line = document.createElement("tr");
    const first = line.insertCell();
    const name = [row.class ?? "(no class)", row.note.split("\n")[0]].filter(Boolean).join(": ");
    const go = button(name, "Go to this annotation", () => this.actions.goTo(row.id));
    go.setAttribute("aria-label", name); // even a short one says more than the title
    first.append(go);
    const area = row.area_mm2 === null ? "" : areaText(row.area_mm2 * 1e6);
    const length = row.length_um === null ? "" : lengthText(row.length_um);
    const replies = row.replies ? ` (${row.replies} ${row.replies === 1 ? "answer" : "answers"})` : "";
    for (const text of [row.kind + replies, area, length, row.inside === null ? "" : row.inside.toLocaleString("en"), row.author, timeText(row.changed_utc)]) {
      line.insertCell().textContent = text;
    }
    return line;
  }

  /** Up and down arrows move between rows. */
  private moveFocus(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const buttons = [...this.body.querySelectorAll("button")];
    const at = buttons.indexOf((event.composedPath()[0] as HTMLElement) as HTMLButtonElement);
    const next = step === undefined ? undefined : buttons[at + step];
    if (next) {
      event.preventDefault();
      event.stopPropagation();
      next.focus();
    }
  }
}
