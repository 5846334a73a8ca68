// Basic elements of the viewer's panels.

export function button(text: string, title: string, action: () => void): HTMLButtonElement {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.title = title;
  if (text.length < 3) {
    element.setAttribute("aria-label", title); // a symbol alone means nothing to a screen reader
  }
  element.addEventListener("click", action);
  return element;
}

/** A button that stays pressed. */
export function toggle(text: string, title: string, action: () => void): HTMLButtonElement {
  const element = button(text, title, action);
  element.setAttribute("aria-pressed", "false");
  return element;
}

export function box(name: string, ...children: (Node | string)[]): HTMLDivElement {
  const element = document.createElement("div");
  element.className = name;
  element.append(...children);
  return element;
}

export function labelled(text: string, ...controls: HTMLElement[]): HTMLLabelElement {
  const element = document.createElement("label");
  element.append(text, ...controls);
  return element;
}

export function checkbox(text: string, name: string, isOn: boolean, changed: (isOn: boolean) => void): HTMLLabelElement {
  const input = document.createElement("input");
  [input.type, input.checked] = ["checkbox", isOn];
  input.setAttribute("aria-label", name);
  input.addEventListener("change", () => changed(input.checked));
  const label = document.createElement("label");
  label.className = "check";
  label.append(input, text);
  return label;
}

export interface Slider {
  element: HTMLLabelElement;
  input: HTMLInputElement;
  /** Show a value without calling `changed`. */
  show(value: number): void;
}

/** @param name accessible name; @param text visible label; @param shown the value as text. */
export function slider(text: string, name: string, changed: (value: number) => void, shown = (value: number): string => value.toFixed(2)): Slider {
  const [input, output] = [document.createElement("input"), document.createElement("output")];
  Object.assign(input, { type: "range", min: "0", max: "1", step: "0.01" });
  input.setAttribute("aria-label", name);
  const write = (): void => {
    output.value = shown(input.valueAsNumber);
    input.setAttribute("aria-valuetext", output.value);
  };
  input.addEventListener("input", () => {
    write();
    changed(input.valueAsNumber);
  });
  /** A value between two steps is shown as the nearest step. */
  const show = (value: number): void => {
    input.valueAsNumber = value;
    write();
  };
  return { element: labelled(text, input, output), input, show };
}

export function menu(name: string, values: readonly string[], value: string, changed: (value: string) => void): HTMLSelectElement {
  const select = document.createElement("select");
  select.setAttribute("aria-label", name);
  select.append(...values.map((option) => new Option(option, option)));
  select.value = value;
  select.addEventListener("change", () => changed(select.value));
  return select;
}
