// The section "Bookmarks" of the panel: saved views with thumbnails and notes; a click goes there.
import { box, button } from "../../panel/elements";
import type { Model } from "../storage/model";
import type { Content } from "../types";

export interface BookmarkActions {
  save(): void;
  go(content: Content): void;
  remove(id: string): void;
  describe(id: string, note: string): void;
}

/** Side of the server's crops, and their coarsest resolution (pathology_app/tiles/review_routes.py). */
const [CROP_PX, MOST_MPP] = [112, 200];
/** A thumbnail shows this many pixels of the screen in each of its own. */
const REDUCED = 6;

export class Bookmarks {
  readonly element = box("bookmarks");
  private readonly list = document.createElement("ul");
  private readonly save: HTMLButtonElement;
  private readonly reports: HTMLElement;
  private shown = "";

  constructor(
    private readonly slideId: string,
    private readonly mpp0: number,
    private readonly model: Model,
    private readonly actions: BookmarkActions,
  ) {
    this.save = button("Bookmark this view", "Save place, magnification and layers (*)", () => actions.save());
    this.list.setAttribute("aria-label", "Bookmarks");
    const reports = (["html", "pdf"] as const).map((kind) => this.reportLink(kind));
    this.reports = box("group", ...reports);
    this.element.append(box("group", this.save), this.list, this.reports);
  }

  show(maySave: boolean, mayExport: boolean): void {
    this.reports.hidden = !mayExport;
    const bookmarks = [...this.model.ofKind("bookmark")];
    const text = JSON.stringify([maySave, bookmarks]);
    if (text !== this.shown && !this.list.contains(document.activeElement)) {
      this.shown = text;
      this.save.hidden = !maySave;
      this.list.replaceChildren(...bookmarks.map(([id, content]) => this.row(id, content, maySave)));
    }
  }

  private reportLink(kind: "html" | "pdf"): HTMLAnchorElement {
    const link = document.createElement("a");
    [link.className, link.textContent, link.target] = ["button", kind === "html" ? "Report" : "PDF", "_blank"];
    link.title = "One page with saved views, counts, measurements and annotations";
    link.href = `/reports/${encodeURIComponent(this.slideId)}/report.${kind}`;
    return link;
  }

  private row(id: string, content: Content, mayChange: boolean): HTMLElement {
    const item = document.createElement("li");
    const go = button("", "Go to this bookmark", () => this.actions.go(content));
    go.className = "picture";
    go.setAttribute("aria-label", content.note ? `Go to bookmark: ${content.note}` : "Go to this bookmark");
    go.append(this.thumbnail(content));
    const note = document.createElement("input");
    [note.type, note.value, note.maxLength, note.placeholder, note.readOnly] = ["text", content.note, 2000, "Note", !mayChange];
    note.setAttribute("aria-label", "Note of the bookmark");
    note.addEventListener("change", () => this.actions.describe(id, note.value));
    const remove = button("×", "Delete this bookmark", () => this.actions.remove(id));
    remove.hidden = !mayChange;
    item.append(go, box("group", note, remove));
    return item;
  }

  private thumbnail({ geometry, view }: Content): HTMLImageElement {
    const image = document.createElement("img");
    const [x, y] = geometry.type === "Point" ? geometry.coordinates : [0, 0];
    const mpp = Math.min(MOST_MPP, Math.max(this.mpp0, REDUCED * (umPerPx(view) ?? 1)));
    [image.alt, image.loading, image.width, image.height] = ["", "lazy", CROP_PX, CROP_PX];
    image.src = `/crops/${encodeURIComponent(this.slideId)}/${Math.floor(x)}_${Math.floor(y)}.jpg?mpp=${mpp.toFixed(3)}`;
    return image;
  }
}

/** µm per screen pixel of a saved view. */
function umPerPx(view: string | null): number | null {
  const value = Number(new URLSearchParams(view ?? "").get("at")?.split(",")[2]);
  return value > 0 ? value : null;
}
