// Tables of facts about the slide and about the point clicked last.
import { box } from "./elements";
import type { ViewerData } from "../types";

export class FactsPanel {
  readonly slide = box("facts");
  readonly probe = box("facts");

  update({ facts, probe, slide, thumbnail_url }: ViewerData): void {
    this.slide.replaceChildren(...(thumbnail_url ? [thumbnailOf(slide.slide_id, thumbnail_url)] : []), tableOf(facts, "Slide"));
    const hint = box("hint", "Click on the slide, or press Enter, to see the probability of every class at that point.");
    this.probe.replaceChildren(probe ? tableOf(probe.rows, "At the last click") : hint);
  }
}

/** Made from the slide's own pixels; the label image is never stored. */
function thumbnailOf(slide_id: string, url: string): HTMLImageElement {
  const image = new Image();
  [image.src, image.alt, image.loading] = [url, `The whole slide ${slide_id}, without its label`, "lazy"];
  [image.style.width, image.style.maxHeight, image.style.objectFit] = ["100%", "150px", "contain"];
  return image;
}

/** @param name accessible name. */
export function tableOf(rows: [string, string][], name: string): HTMLTableElement {
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
