// What is known of the slide, and of the point that was clicked last, as tables.
import { box } from "./elements";
import type { ViewerData } from "./types";

export class FactsPanel {
  readonly slide = box("facts");
  readonly probe = box("facts");

  update({ facts, probe, slide, thumbnail_url }: ViewerData): void {
    this.slide.replaceChildren(...(thumbnail_url ? [thumbnailOf(slide.slide_id, thumbnail_url)] : []), tableOf(facts, "Slide"));
    const hint = box("hint", "Click on the slide, or press Enter, to read every class's probability there.");
    this.probe.replaceChildren(probe ? tableOf(probe.rows, "Under the last click") : hint);
  }
}

/** Made of the slide's own pixels: the picture of its label is never kept. */
function thumbnailOf(slide_id: string, url: string): HTMLImageElement {
  const image = new Image();
  [image.src, image.alt, image.loading] = [url, `The whole slide ${slide_id}, without its label`, "lazy"];
  [image.style.width, image.style.maxHeight, image.style.objectFit] = ["100%", "150px", "contain"];
  return image;
}

function tableOf(rows: [string, string][], name: string): HTMLTableElement {
  const table = document.createElement("table");
  table.setAttribute("aria-label", name);
  for (const [term, text] of rows) {
    const row = table.insertRow();
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = term;
    row.append(head);
    row.insertCell().textContent = text;
  }
  return table;
}
