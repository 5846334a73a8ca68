// Export menu of the slide's page: an image of the view, the model's results as files, and the command that opens the slide
// in napari.
import { box, button } from "../panel/elements";
import type { Exports } from "../types";

const EDGE_PX = 8;
const STYLE = `
.export { position: relative; }
.export > summary { display: inline-flex; align-items: center; min-height: 32px; padding: 0 10px; border: 1px solid var(--line); border-radius: 6px; cursor: pointer; list-style: none; }
.export > summary::after { content: "▾"; margin-left: 6px; }
.export > div { position: absolute; z-index: 6; top: calc(100% + 4px); right: 0; width: min(340px, 90vw); display: flex; flex-direction: column; gap: 6px; padding: 10px; color: var(--ink); background: var(--ground); border: 1px solid var(--line); border-radius: 8px; box-shadow: 0 4px 16px rgb(0 0 0 / 0.25); }
.export a, .export > div > button { display: flex; align-items: center; min-height: 32px; padding: 0 8px; color: inherit; text-align: left; border-radius: 6px; border: 1px solid var(--line); text-decoration: none; font: inherit; background: none; cursor: pointer; }
.export a:hover { border-color: var(--accent); }
.export code { display: block; padding: 6px 8px; border-radius: 6px; background: var(--raised); font: 12px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; user-select: all; }
.export .napari { display: flex; flex-direction: column; gap: 6px; align-items: flex-start; }
@media (pointer: coarse) { .export > summary, .export a, .export button { min-height: 44px; } }
`;

export class ExportMenu {
  readonly element = document.createElement("details");
  private readonly list = box("");

  /** @param savePicture saves an image of the view. */
  constructor(private readonly savePicture: () => void) {
    const [summary, style] = [document.createElement("summary"), document.createElement("style")];
    summary.textContent = "Export";
    style.textContent = STYLE;
    this.element.className = "export";
    this.element.append(style, summary, this.list);
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.element.open) {
        event.stopPropagation();
        this.element.open = false;
        summary.focus();
      }
    });
    this.element.addEventListener("toggle", () => this.keepInWindow());
    this.element.addEventListener("focusout", ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && !this.element.contains(relatedTarget)) {
        this.element.open = false;
      }
    });
  }

  update(exports: Exports | null): void {
    this.element.hidden = exports === null;
    if (exports) {
      this.show(exports);
    }
  }

  private show({ files, command, may_export }: Exports): void {
    const links = files.map(({ label, url }) => {
      const link = document.createElement("a");
      [link.textContent, link.href, link.download] = [label, url, ""];
      return link;
    });
    const image = button("Image of this view (PNG)", "Save the current view with scale bar and colour legend", () => this.savePicture());
    const refused = box("hint", "You may view this slide, but not export it.");
    this.list.replaceChildren(...(may_export ? [image, ...links] : [refused]), this.napari(command));
  }

  /** The toolbar wraps, so the button may be at either side of the window. */
  private keepInWindow(): void {
    this.list.style.translate = "";
    const { left, right } = this.list.getBoundingClientRect();
    const shift = Math.max(0, EDGE_PX - left) - Math.max(0, right - window.innerWidth + EDGE_PX);
    this.list.style.translate = `${shift}px`;
  }

  private napari(command: string): HTMLElement {
    const code = document.createElement("code");
    code.textContent = command;
    const copy = button("Copy", "Copy the command", () => {
      const select = (): void => window.getSelection()?.selectAllChildren(code);
      // Browsers deny the clipboard to pages loaded over plain http from another computer.
      const copied = navigator.clipboard?.writeText(command).then(() => void (copy.textContent = "Copied"), select);
      if (!copied) {
        select();
      }
    });
    return box("napari", "Open in napari: on a computer that has the project, run", code, copy);
  }
}

/** Download a canvas as a PNG file. */
export function save(canvas: HTMLCanvasElement, name: string): void {
  canvas.toBlob((blob) => {
    if (blob) {
      const link = document.createElement("a");
      [link.href, link.download] = [URL.createObjectURL(blob), name];
      link.click();
      window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }
  }, "image/png");
}
