// The row of buttons above the slide. What they do, keys do as well (commands.ts).
import { MAGNIFICATIONS } from "./navigation";
import { box, button, toggle } from "./elements";
import type { ToolName } from "./tools/toolbox";

export interface ToolbarActions {
  showWhole(): void;
  magnify(magnification: number): void;
  nextHotspot(step: 1 | -1): void;
  turn(degrees: number): void;
  mirror(): void;
  take(tool: ToolName): void;
  clearTools(): void;
  togglePanel(): void;
  fullScreen(): void;
  listKeys(): void;
}

export class Toolbar {
  readonly element = box("toolbar");
  /** Where other parts put their buttons. */
  readonly extras = box("group extras");
  private readonly hotspots: HTMLDivElement;
  private readonly tools: Record<ToolName, HTMLButtonElement>;

  constructor(actions: ToolbarActions) {
    this.element.setAttribute("role", "toolbar");
    this.element.setAttribute("aria-label", "Viewer");
    this.tools = {
      ruler: toggle("Ruler", "Measure a length (m)", () => actions.take("ruler")),
      area: toggle("Area", "Measure an area (Shift + m)", () => actions.take("area")),
      count: toggle("Count", "Circle of 1 mm², then of 2 mm², to count in (c)", () => actions.take("count")),
    };
    this.hotspots = box(
      "group hotspot-controls",
      button("‹", "Previous hotspot (p)", () => actions.nextHotspot(-1)),
      "Hotspot",
      button("›", "Next hotspot (n)", () => actions.nextHotspot(1)),
    );
    this.element.append(
      box(
        "group",
        button("Fit", "Show the whole slide (0)", () => actions.showWhole()),
        ...MAGNIFICATIONS.map((value, index) => button(`${value}×`, `Magnify ${value} times (${index + 1})`, () => actions.magnify(value))),
      ),
      box(
        "group",
        button("↻", "Turn right (t)", () => actions.turn(90)),
        button("↺", "Turn left (Shift + t)", () => actions.turn(-90)),
        button("⇋", "Mirror left and right (v)", () => actions.mirror()),
      ),
      box("group", ...Object.values(this.tools), button("⌫", "Clear what was measured and counted (Delete)", () => actions.clearTools())),
      this.hotspots,
      this.extras,
      box(
        "group view-controls",
        button("Panel", "Show or hide the panel (b)", () => actions.togglePanel()),
        button("⤢", "Full screen (f); Esc ends it", () => actions.fullScreen()),
        button("?", "Keys (?)", () => actions.listKeys()),
      ),
    );
  }

  show(hasHotspots: boolean, inHand: ToolName | null): void {
    this.hotspots.hidden = !hasHotspots;
    for (const [name, element] of Object.entries(this.tools)) {
      element.setAttribute("aria-pressed", String(name === inHand));
    }
  }
}
