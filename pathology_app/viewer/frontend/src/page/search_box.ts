// A field that searches while the user types.
import type { Streamlit } from "../types";
import { focusList } from "./rows";

export interface SearchData {
  label: string;
  placeholder: string;
  value: string;
  max_length: number;
}

/** Delay after the last key before the query is sent to Python. */
const PAUSE_MS = 250;

const STYLE = `
label { display: block; font-family: inherit; font-size: 0.875rem; line-height: 1.5rem; }
kbd { margin-left: 8px; padding: 0 6px; border: 1px solid #8a90a0; border-radius: 4px; font: 0.75rem/1.2rem ui-monospace, monospace; }
@media (pointer: coarse) { kbd { display: none; } }
input { display: block; box-sizing: border-box; width: 100%; height: 40px; margin-top: 4px; padding: 0 12px; font-family: inherit;
  font-size: 1rem; color: inherit; background: var(--st-secondary-background-color, #f4f5f8); border: 1px solid #8a90a0; border-radius: 8px; }
input::placeholder { color: inherit; opacity: 0.75; }
input:focus { outline: 2px solid var(--st-primary-color, #b0175b); outline-offset: 1px; }
`;

class SearchBox {
  private readonly input = document.createElement("input");
  private readonly text = document.createElement("span");
  private timer = 0;
  private sent = "";

  constructor(private component: Streamlit<SearchData>) {
    const style = document.createElement("style");
    style.textContent = STYLE;
    const label = document.createElement("label");
    this.input.type = "search";
    this.input.addEventListener("input", () => {
      window.clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.send(), PAUSE_MS);
    });
    this.input.addEventListener("keydown", (event) => {
      event.stopPropagation(); // keys typed here are text, not commands of the page
      if (event.key === "Enter") {
        this.send();
      } else if (event.key === "ArrowDown" && focusList()) {
        event.preventDefault();
      }
    });
    this.input.setAttribute("aria-keyshortcuts", "/");
    const key = document.createElement("kbd");
    key.textContent = "/";
    key.title = "Press / to type here, the down arrow to go to the list";
    key.setAttribute("aria-hidden", "true");
    label.append(this.text, key, this.input);
    component.parentElement.append(style, label);
    this.input.value = this.sent = component.data.value;
    this.update(component);
  }

  update(component: Streamlit<SearchData>): void {
    this.component = component;
    const { label, placeholder, value, max_length } = component.data;
    this.text.textContent = label;
    [this.input.placeholder, this.input.maxLength] = [placeholder, max_length];
    // Python returns the text typed a moment ago, unless a link or the browser's Back button has changed it.
    if (value !== this.sent) {
      this.input.value = this.sent = value;
    }
  }

  private send(): void {
    window.clearTimeout(this.timer);
    if (this.input.value !== this.sent) {
      this.sent = this.input.value;
      this.component.setTriggerValue("find", this.sent);
    }
  }
}

const boxes = new WeakMap<Streamlit<unknown>["parentElement"], SearchBox>();

export function searchBox(component: Streamlit<SearchData>): void {
  const box = boxes.get(component.parentElement);
  if (box) {
    box.update(component);
  } else {
    boxes.set(component.parentElement, new SearchBox(component));
  }
}
