// The class of what is chosen and of what is drawn next: one of those in use, or a new one.
import { box, labelled } from "../elements";

const [NONE, NEW] = ["(no class)", "New class…"];
const MAX_LENGTH = 100;

export class ClassMenu {
  readonly element: HTMLElement;
  private readonly select = document.createElement("select");
  private readonly input = document.createElement("input");
  private readonly inputBox: HTMLElement;
  private names: string[] = [];
  private shown: string | null = null;

  constructor(private readonly chosen: (name: string | null) => void) {
    this.select.addEventListener("change", () => this.selected());
    [this.input.type, this.input.maxLength] = ["text", MAX_LENGTH];
    this.input.addEventListener("change", () => this.typed());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.input.value = "";
        this.typed();
      }
    });
    this.inputBox = labelled("New class", this.input);
    this.inputBox.hidden = true;
    this.select.setAttribute("aria-label", "Class");
    this.element = box("class-menu", labelled("Class", this.select), this.inputBox);
    this.offer([]);
  }

  /** The classes to choose from. */
  offer(names: string[]): void {
    if (names.join("\n") !== this.names.join("\n") || !this.select.options.length) {
      this.names = names;
      this.fill();
    }
  }

  show(name: string | null): void {
    if (name !== this.shown || (name !== null && !this.names.includes(name))) {
      this.shown = name;
      this.fill();
    }
  }

  focus(): void {
    this.select.focus();
  }

  private fill(): void {
    const names = this.shown !== null && !this.names.includes(this.shown) ? [...this.names, this.shown] : this.names;
    // The values of classes begin with a blank, which no class does: none can be mistaken for another entry.
    this.select.replaceChildren(new Option(NONE, NONE), ...names.map((name) => new Option(name, ` ${name}`)), new Option(NEW, NEW));
    this.select.value = this.shown === null ? NONE : ` ${this.shown}`;
  }

  private selected(): void {
    const { value } = this.select;
    if (value === NEW) {
      this.inputBox.hidden = false;
      this.input.focus();
      return;
    }
    this.tell(value === NONE ? null : value.slice(1));
  }

  private typed(): void {
    const name = this.input.value.trim();
    this.inputBox.hidden = true;
    this.input.value = "";
    this.fill();
    if (name) {
      this.tell(name);
    }
  }

  private tell(name: string | null): void {
    this.shown = name;
    this.fill();
    this.chosen(name);
  }
}
