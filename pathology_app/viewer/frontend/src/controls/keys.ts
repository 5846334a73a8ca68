// What each key does, and the page that lists them.

export interface Command {
  /** As `KeyboardEvent.key` gives them. */
  keys: string[];
  /** With shift held; for keys that are the same without it. */
  shift?: boolean;
  shown: string;
  does: string;
  run(event: KeyboardEvent): void;
}

const TYPED_INTO = "input:not([type=range], [type=checkbox], [type=radio]), textarea, select, [contenteditable], [role=combobox]";
const CONTROL = "input, button, a, canvas, summary, [role=radio], [role=option], [role=grid], [role=tab]";
/** What a control that is not typed into may use itself. */
const OF_CONTROLS = ["Enter", " ", "Home", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];

export class Keys {
  readonly element = document.createElement("dialog");

  constructor(private readonly commands: Command[]) {
    const title = document.createElement("h2");
    title.textContent = "Keys";
    const list = document.createElement("dl");
    for (const { shown, does } of commands) {
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      [term.textContent, text.textContent] = [shown, does];
      list.append(term, text);
    }
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => this.element.close());
    this.element.className = "keys";
    this.element.setAttribute("aria-label", "Keys");
    // The button first: it gets the focus, and the list begins at its top.
    title.append(close);
    this.element.append(title, list);
  }

  /** Carry out what a key stands for, whoever pressed what. */
  run(key: string, shift: boolean): void {
    const command = this.commandOf(key, shift);
    if (command && (!this.element.open || command.keys.includes("?"))) {
      command.run(new KeyboardEvent("keydown", { key, shiftKey: shift }));
    }
  }

  showList(): void {
    if (this.element.open) {
      this.element.close();
    } else {
      this.element.showModal();
    }
  }

  /**
   * Carry out a key, wherever the focus is, but for one that is typed into a field or used by a control.
   * @param stage the slide: there every key is ours.
   */
  press(event: KeyboardEvent, stage: Element): void {
    const target = event.composedPath()[0];
    // A list that was just closed keeps the focus for a moment.
    const isOurs = [stage, this.element].some((each) => target instanceof Node && each.contains(target));
    const isTaken = event.defaultPrevented || (!isOurs && isUsedBy(target, event.key));
    if (event.ctrlKey || event.metaKey || event.altKey || isTaken) {
      return;
    }
    const command = this.commandOf(event.key, event.shiftKey);
    if (command && (!this.element.open || command.keys.includes("?"))) {
      event.preventDefault();
      command.run(event);
    }
  }

  private commandOf(key: string, isShifted: boolean): Command | undefined {
    return this.commands.find(({ keys, shift }) => keys.includes(key) && (shift === undefined || shift === isShifted));
  }
}

/** Whether somebody types there, or a control uses the key itself. */
function isUsedBy(target: EventTarget | undefined, key: string): boolean {
  return target instanceof Element && (target.matches(TYPED_INTO) || (target.matches(CONTROL) && OF_CONTROLS.includes(key)));
}
