// The row of buttons above the slide. Every action also has a key (commands.ts).
import { MAGNIFICATIONS } from "../view/navigation";
import { box, button, toggle } from "../panel/elements";

export type MeasuringTool = "ruler" | "area" | "count";

export interface ToolbarActions {
  showWhole(): void;
  magnify(magnification: number): void;
  nextHotspot(step: 1 | -1): void;
  nextSlide(step: 1 | -1): void;
  turn(degrees: number): void;
  mirror(): void;
  take(tool: MeasuringTool): void;
  togglePanel(): void;
  fullScreen(): void;
  listKeys(): void;
}

export class Toolbar {
  readonly element = box("toolbar");
  /** Buttons of other parts. */
  readonly extras = box("group extras");
  private readonly hotspots: HTMLDivElement;
  private readonly slides: HTMLDivElement;
  private readonly tools: Record<MeasuringTool, HTMLButtonElement>;

  constructor(actions: ToolbarActions) {
    this.element.setAttribute("role", "toolbar");
    this.element.setAttribute("aria-label", "Viewer");
    this.tools = {
      ruler: toggle("Ruler", "Measure a length (m)", () => actions.take("ruler")),
      area: toggle("Area", "Measure an area (Shift + m)", () => actions.take("area")),
      count: toggle("Count", "Count in a circle of 1 mm² or 2 mm², or in an area (c)", () => actions.take("count")),
    };
    this.hotspots = box(
      "group hotspot-controls",
      button("‹", "Previous hotspot (p)", () => actions.nextHotspot(-1)),
      "Hotspot",
      button("›", "Next hotspot (n)", () => actions.nextHotspot(1)),
    );
    this.slides = box(
      "group slide-controls",
      button("‹", "Previous slide (,)", () => actions.nextSlide(-1)),
      "Slide",
      button("›", "Next slide (.)", () => actions.nextSlide(1)),
    );
    this.slides.hidden = true;
    this.element.append(
      this.slides,
      box(
        "group",
        button("Fit", "Show the whole slide (0)", () => actions.showWhole()),
        ...MAGNIFICATIONS.map((value, index) => button(`${value}×`, `Zoom to ${value}× (${index + 1})`, () => actions.magnify(value))),
      ),
      box(
        "group",
        button("↻", "Rotate clockwise (t)", () => actions.turn(90)),
        button("↺", "Rotate anticlockwise (Shift + t)", () => actions.turn(-90)),
        button("⇋", "Flip horizontally (v)", () => actions.mirror()),
      ),
      box("group", ...Object.values(this.tools)),
      this.hotspots,
      this.extras,
      box(
        "group view-controls",
        button("Panel", "Show or hide the panel (b)", () => actions.togglePanel()),
        button("⤢", "Full screen (f); Esc to leave", () => actions.fullScreen()),
        button("?", "Keys (?)", () => actions.listKeys()),
      ),
    );
  }

  /** @param areOthers whether there are other slides to go to. */
  showSlides(areOthers: boolean): void {
    this.slides.hidden = !areOthers;
  }

  show(hasHotspots: boolean, inHand: string | null): void {
    this.hotspots.hidden = !hasHotspots;
    for (const [name, element] of Object.entries(this.tools)) {
      element.setAttribute("aria-pressed", String(name === inHand));
    }
  }
}
