// Menu for the class of the selection and of annotations drawn next: an existing class or a new one.
import { box, labelled } from "../../panel/elements";

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

  /** Set the classes to choose from. */
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
    // Values of classes start with a space, which no class name does, so that none is mistaken for another entry.
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
    this.choose(value === NONE ? null : value.slice(1));
  }

  private typed(): void {
    const name = this.input.value.trim();
    this.inputBox.hidden = true;
    this.input.value = "";
    this.fill();
    if (name) {
      this.choose(name);
    }
  }

  private choose(name: string | null): void {
    this.shown = name;
    this.fill();
    this.chosen(name);
  }
}
