// The panel beside the views: counts, annotations and bookmarks of the view that was pressed last.
import { box } from "../panel/elements";
import { SidePanel } from "../panel/side";
import type { ComparePane } from "./pane";

export class ComparePanel {
  readonly side: SidePanel;
  private readonly parts = new Map<ComparePane, HTMLElement[]>();
  private readonly name = box("pane-name");

  /** @param changed called when the panel is shown or hidden. */
  constructor(panes: ComparePane[], changed: () => void) {
    this.side = new SidePanel(changed);
    this.side.element.hidden = true;
    this.side.element.setAttribute("aria-label", "Counts, annotations and bookmarks");
    this.side.element.append(this.name);
    const [counts, drawn, bookmarks] = [box("of-panes"), box("of-panes"), box("of-panes")];
    for (const pane of panes) {
      const { annotations } = pane;
      const own = annotations.isScratch ? [] : ([[drawn, annotations.panel.element], [bookmarks, annotations.bookmarks.element]] as const);
      const all = [[counts, annotations.countPanel.element], ...own] as const;
      all.forEach(([section, element]) => section.append(element));
      this.parts.set(pane, all.map(([, element]) => element));
    }
    this.side.add("Counts", counts, false);
    this.side.add("Annotations", drawn, false);
    this.side.add("Bookmarks", bookmarks, false);
  }

  show(active: ComparePane): void {
    this.name.textContent = active.data.slide.slide_id;
    for (const [pane, elements] of this.parts) {
      // A box of our own would be simpler, but the panels set `hidden` themselves.
      elements.forEach((element) => element.classList.toggle("of-another", pane !== active));
    }
  }
}
