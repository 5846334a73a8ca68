// Keyboard commands, and the dialog that lists them.

export interface Command {
  /** Values of `KeyboardEvent.key`. */
  keys: string[];
  /** Whether Shift must be held; only for keys whose `key` value does not depend on Shift. */
  shift?: boolean;
  shown: string;
  does: string;
  run(event: KeyboardEvent): void;
}

const TYPED_INTO = "input:not([type=range], [type=checkbox], [type=radio]), textarea, select, [contenteditable], [role=combobox]";
const CONTROL = "input, button, a, canvas, summary, [role=radio], [role=option], [role=grid], [role=tab], [role=separator]";
/** Keys that a control without text input may use itself. */
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
    // The button comes first, so that it gets the focus and the list starts at the top.
    title.append(close);
    this.element.append(title, list);
  }

  /** Run the command of a key, without a keyboard event. */
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
   * Run the command of a pressed key, unless a field or a control uses that key itself.
   * @param stage the slide: with the focus there, every key is the viewer's.
   */
  press(event: KeyboardEvent, stage: Element): void {
    const target = event.composedPath()[0];
    // The dialog keeps the focus for a moment after it closes.
    const isOurs = [stage, this.element].some((element) => target instanceof Node && element.contains(target));
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

/** Whether the target is a text field, or a control that uses the key itself. */
function isUsedBy(target: EventTarget | undefined, key: string): boolean {
  return target instanceof Element && (target.matches(TYPED_INTO) || (target.matches(CONTROL) && OF_CONTROLS.includes(key)));
}
