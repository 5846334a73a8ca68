// The row of buttons above slides that are shown side by side. Most also have a key (commands.ts).
import type { ToolChoice } from "../annotations/annotating";
import { PALETTE_NAMES } from "../layers/palettes";
import type { LayerStyle } from "../layers/style";
import { box, button, checkbox, menu, slider, toggle } from "../panel/elements";
import type { MeasuringTool } from "../tools/toolbar";
import { MAGNIFICATIONS } from "../view/navigation";

export interface CompareActions {
  whole(): void;
  magnify(magnification: number): void;
  turn(degrees: number): void;
  mirror(): void;
  setLinked(isLinked: boolean): void;
  register(): void;
  reset(): void;
  take(tool: MeasuringTool): void;
  annotate(): void;
  restyle(change: Partial<LayerStyle>): void;
  togglePanel(): void;
  listKeys(): void;
}

export class CompareToolbar {
  readonly element = box("toolbar");
  /** Buttons that align the views, and further ones. */
  readonly aligning = box("group");
  private readonly registering: HTMLButtonElement;
  private readonly annotating: HTMLButtonElement;
  private readonly tools: Record<MeasuringTool, HTMLButtonElement>;

  /**
   * @param style of the first prediction; null if no view has one.
   * @param adding the button that adds a slide; null if there is no room.
   */
  constructor(actions: CompareActions, style: LayerStyle | null, adding: HTMLElement | null) {
    this.registering = toggle("Align", "Align the slides: click the same two points in every view (g)", () => actions.register());
    this.annotating = toggle("Annotate", "Draw and edit annotations (a)", () => actions.annotate());
    this.tools = {
      ruler: toggle("Ruler", "Measure a length (m)", () => actions.take("ruler")),
      area: toggle("Area", "Measure an area (Shift + m)", () => actions.take("area")),
      count: toggle("Count", "Count in a circle of 1 mm² or 2 mm², or in an area (c)", () => actions.take("count")),
    };
    this.aligning.append(checkbox("Link views", "Link views", true, (isOn) => actions.setLinked(isOn)), this.registering, button("Reset", "Remove the alignment", () => actions.reset()));
    this.element.setAttribute("role", "toolbar");
    this.element.setAttribute("aria-label", "Views");
    this.element.append(
      box("group", ...(adding ? [adding] : [])),
      box("group", button("Fit", "Show the whole slide (0)", () => actions.whole()), ...MAGNIFICATIONS.map((value) => button(`${value}×`, `Zoom to ${value}×`, () => actions.magnify(value)))),
      box("group", button("↻", "Rotate clockwise (t)", () => actions.turn(90)), button("↺", "Rotate anticlockwise (Shift + t)", () => actions.turn(-90)), button("⇋", "Flip horizontally (v)", () => actions.mirror())),
      box("group", ...Object.values(this.tools), this.annotating),
      this.aligning,
      ...(style ? [shared(actions, style)] : []),
      box("group view-controls", button("Panel", "Show or hide the panel (b)", () => actions.togglePanel()), button("?", "Keys (?)", () => actions.listKeys())),
    );
  }

  showRegistering(isOn: boolean): void {
    this.registering.setAttribute("aria-pressed", String(isOn));
  }

  /** @param inHand the tool of the view that was pressed last. */
  showTool(inHand: ToolChoice | null, isDrawing: boolean): void {
    this.annotating.setAttribute("aria-pressed", String(isDrawing));
    for (const [name, element] of Object.entries(this.tools)) {
      element.setAttribute("aria-pressed", String(name === inHand));
    }
  }
}

/** Controls of the predictions in all views. */
function shared({ restyle }: CompareActions, style: LayerStyle): HTMLElement {
  const threshold = slider("Threshold", "Threshold", (value) => restyle({ threshold: value }));
  const opacity = slider("Opacity", "Opacity", (value) => restyle({ opacity: value }));
  threshold.show(style.threshold);
  opacity.show(style.opacity);
  return box(
    "group shared",
    checkbox("Predictions", "Show predictions", style.visible, (isOn) => restyle({ visible: isOn })),
    threshold.element,
    opacity.element,
    menu("Colours", PALETTE_NAMES, style.palette, (value) => restyle({ palette: value })),
  );
}
