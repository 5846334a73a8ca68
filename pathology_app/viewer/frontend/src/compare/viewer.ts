// Two to four views that move together: several models over one slide, or the slides of a case.
import { box, button, checkbox, menu, type Slider, slider, toggle } from "../panel/elements";
import type { Point } from "../view/geometry";
import { keepHeight } from "../page/height";
import { type Command, Keys } from "../controls/keys";
import { styleText } from "../layers/style";
import { LinkState, OVERLAY, AT, viewOf, viewText } from "../view/link_state";
import { MAGNIFICATIONS, type View } from "../view/navigation";
import { PALETTE_NAMES } from "../layers/palettes";
import type { CompareData } from "../types";
import { ComparePane } from "./pane";
import { back, missBy, moved, onFirst, onOther, type Registration, registrationFrom, registrationOf, registrationText, SAME } from "./registration";
import { SavedAlignments } from "./saved_alignment";

const REGISTERED = "together";
const ARROWS: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class CompareViewer {
  readonly panes: ComparePane[];
  /** Registration of each pane's slide to the first one's. */
  registrations: Registration[];
  isLinked = true;
  private readonly element = box("compare");
  private readonly hint = box("hint");
  private readonly sliders: Slider[] = [];
  private readonly registering: HTMLButtonElement;
  private readonly link: LinkState;
  private readonly keys: Keys;
  private readonly listeners = new AbortController();
  private readonly saved: SavedAlignments;
  private isRegistering = false;
  private opened = 0;

  constructor(
    private readonly host: HTMLElement,
    public data: CompareData,
  ) {
    this.link = new LinkState(data.name, "compare");
    this.registrations = registrationsOf(this.link.read(REGISTERED), data.panes.length);
    const events = { moved: (pane: ComparePane) => this.lead(pane), clicked: (pane: ComparePane, at: Point) => this.clicked(pane, at) };
    this.registering = toggle("Align", "Align the slides: click the same two points in every view (g)", () => this.register());
    this.panes = data.panes.map((pane) => new ComparePane(pane, this.link.read(OVERLAY), events));
    this.keys = new Keys(this.commands());
    const slideIds = data.panes.map(({ slide }) => slide.slide_id);
    const saved = { apply: (slideId: string, registration: Registration) => this.follow(slideId, registration), say: (text: string) => this.say(text) };
    this.saved = new SavedAlignments(slideIds, data.may_register ?? false, saved, this.listeners.signal);
    this.host.append(this.toolbar(), this.saved.element, this.hint, this.element, this.keys.element);
    this.hint.setAttribute("role", "status");
    this.element.dataset["panes"] = String(this.panes.length);
    this.element.append(...this.panes.map((pane) => pane.element));
    this.listen();
    keepHeight(this.host, this.element, this.listeners.signal);
  }

  /** Show new data for the same slides; returns false if the slides differ. */
  update(data: CompareData): boolean {
    const urls = ({ panes }: CompareData): string => panes.map(({ slide }) => slide.tile_url).join(" ");
    if (urls(data) !== urls(this.data)) {
      return false;
    }
    this.data = data;
    this.link.rename(data.name);
    this.panes.forEach((pane, index) => pane.update(data.panes[index]!));
    return true;
  }

  destroy(): void {
    this.listeners.abort();
    this.panes.forEach((pane) => pane.destroy());
    this.host.remove();
  }

  private get isOpen(): boolean {
    return !this.listeners.signal.aborted && this.panes.every((pane) => pane.isOpen);
  }

  private listen(): void {
    const { signal } = this.listeners;
    for (const pane of this.panes) {
      pane.osd.addHandler("open", () => this.paneOpened());
      pane.osd.addHandler("animation", () => this.followMoving(pane));
      pane.osd.addHandler("animation-finish", () => this.write());
      // On a resize, OpenSeadragon keeps each view's own content, which differs between views of different sizes.
      pane.osd.addHandler("resize", () => requestAnimationFrame(() => this.isOpen && this.lead(this.leading ?? this.panes[0]!)));
      pane.element.addEventListener("pointermove", (event) => this.point(pane, pane.slidePoint(event)), { signal });
      pane.element.addEventListener("pointerleave", () => this.point(pane, null), { signal });
    }
    document.addEventListener("keydown", (event) => this.host.isConnected && this.keys.press(event, this.element), { signal, capture: true });
  }

  private toolbar(): HTMLElement {
    const style = this.panes[0]?.first?.style;
    const restyle = (change: (pane: ComparePane) => void): void => {
      for (const pane of this.panes) {
        change(pane);
        if (pane.first) {
          pane.layers.restyled(pane.first);
        }
      }
      const first = this.panes.find((pane) => pane.first)?.first;
      this.link.write(OVERLAY, first ? styleText(first.style) : "");
    };
    const controls = (["threshold", "opacity"] as const).map((key) => {
      const control = slider(key === "threshold" ? "Threshold" : "Opacity", key === "threshold" ? "Threshold" : "Opacity", (value) =>
        restyle((pane) => pane.first && (pane.first.style[key] = value)),
      );
      control.show(style?.[key] ?? 0);
      this.sliders.push(control);
      return control.element;
    });
    const shown = checkbox("Predictions", "Show predictions", style?.visible ?? true, (isOn) => restyle((pane) => pane.first && (pane.first.style.visible = isOn)));
    const palette = menu("Colours", PALETTE_NAMES, style?.palette ?? PALETTE_NAMES[0]!, (value) => restyle((pane) => pane.first && (pane.first.style.palette = value)));
    const linked = checkbox("Link views", "Link views", true, (isOn) => {
      this.isLinked = isOn;
    });
    const bar = box(
      "toolbar",
      box("group", button("Fit", "Show the whole slide (0)", () => this.whole()), ...MAGNIFICATIONS.map((value) => button(`${value}×`, `Zoom to ${value}×`, () => this.magnify(value)))),
      box("group", linked, this.registering, button("Reset", "Remove the alignment", () => this.reset())),
      box("group shared", shown, ...controls, palette),
      box("group view-controls", button("?", "Keys (?)", () => this.keys.showList())),
    );
    bar.setAttribute("role", "toolbar");
    bar.setAttribute("aria-label", "Views");
    return bar;
  }

  private commands(): Command[] {
    const first = (run: (pane: ComparePane) => void) => (): void => {
      const pane = this.panes[0]!;
      run(pane);
      this.lead(pane);
    };
    const arrows = Object.keys(ARROWS);
    return [
      { keys: arrows, shift: false, shown: "Arrows", does: "move a little", run: ({ key }) => first(({ navigation }) => navigation.nudge(...ARROWS[key]!))() },
      { keys: arrows, shift: true, shown: "Shift + arrows", does: "move to the next field of view", run: ({ key }) => first(({ navigation }) => navigation.nextField(...ARROWS[key]!))() },
      { keys: ["+", "="], shown: "+", does: "zoom in", run: first(({ navigation }) => navigation.zoom(1)) },
      { keys: ["-", "_"], shown: "−", does: "zoom out", run: first(({ navigation }) => navigation.zoom(-1)) },
      { keys: MAGNIFICATIONS.map((_, index) => String(index + 1)), shown: `1 to ${MAGNIFICATIONS.length}`, does: `zoom to ${MAGNIFICATIONS.join("×, ")}×`, run: ({ key }) => this.magnify(MAGNIFICATIONS[Number(key) - 1]!) },
      { keys: ["0", "Home"], shown: "0 or Home", does: "show the whole slide", run: () => this.whole() },
      { keys: ["t"], shown: "t", does: "rotate clockwise by 90°", run: first(({ navigation }) => navigation.turn(90)) },
      { keys: ["g"], shown: "g", does: "align the slides: click the same two points in every view", run: () => this.register() },
      { keys: ["?"], shown: "?", does: "show this list", run: () => this.keys.showList() },
    ];
  }

  private whole(): void {
    this.panes[0]!.navigation.showWhole();
    this.lead(this.panes[0]!);
  }

  private magnify(magnification: number): void {
    this.panes[0]!.navigation.magnify(magnification);
    this.lead(this.panes[0]!);
  }

  private paneOpened(): void {
    this.opened += 1;
    if (this.opened === this.panes.length) {
      const view = viewOf(this.link.read(AT));
      if (view) {
        this.panes[0]!.navigation.show(view, true);
      }
      this.lead(this.panes[0]!);
      void this.saved.load(!this.link.read(REGISTERED));
    }
  }

  /** Let every view of a slide follow a registration of it to the first view's. */
  private follow(slideId: string, registration: Registration): void {
    this.registrations = this.registrations.map((before, index) => (index && this.panes[index]!.data.slide.slide_id === slideId ? registration : before));
    this.lead(this.panes[0]!);
  }

  private leading: ComparePane | null = null;

  /** Make the other views follow this one. */
  private lead(pane: ComparePane): void {
    this.leading = pane;
    this.followMoving(pane);
  }

  private followMoving(pane: ComparePane): void {
    if (!this.isLinked || pane !== this.leading) {
      return;
    }
    const view = this.onFirst(pane, pane.navigation.view(true));
    this.panes.forEach((other, index) => {
      if (other !== pane && other.isOpen) {
        other.follow(onOther(view, this.registrations[index]!));
      }
    });
  }

  /** The same view in the coordinates of the first pane. */
  private onFirst(pane: ComparePane, view: View): View {
    return onFirst(view, this.registrations[this.panes.indexOf(pane)]!);
  }

  /** Mark the pointer's position in the other views. */
  private point(pane: ComparePane, at: Point | null): void {
    const registration = this.registrations[this.panes.indexOf(pane)]!;
    const on_um = at ? back(registration, pane.inUm(at)) : null;
    this.panes.forEach((other, index) => {
      const pointer_um = on_um ? moved(this.registrations[index]!, on_um) : null;
      const { mpp0 } = other.data.slide;
      other.pointer = pointer_um && other !== pane ? { x: pointer_um.x / mpp0, y: pointer_um.y / mpp0 } : null;
      other.draw();
    });
  }

  private register(): void {
    this.isRegistering = !this.isRegistering;
    this.panes.forEach((pane) => (pane.anchors = []));
    this.say();
  }

  private clicked(pane: ComparePane, at: Point): void {
    if (this.isRegistering && pane.anchors.length < 2) {
      pane.anchors = [...pane.anchors, at];
      this.say();
      if (this.panes.every(({ anchors }) => anchors.length === 2)) {
        this.finish();
      }
    }
  }

  private finish(): void {
    const points = this.panes.map((pane) => pane.anchors.map((anchor) => pane.inUm(anchor)) as [Point, Point]);
    const registrations = points.map((to, index) => (index ? registrationOf(points[0]!, to) : SAME));
    const clicked = this.panes.map((pane) => pane.anchors);
    this.isRegistering = false;
    this.panes.forEach((pane) => (pane.anchors = []));
    if (registrations.some((registration) => registration === null)) {
      this.say("The two points in a view are too close together. Choose points further apart.");
      return;
    }
    this.registrations = registrations as Registration[];
    this.say(`Aligned; the points still differ by up to ${Math.max(...points.map((to) => missBy(points[0]!, to))).toFixed(0)} µm.`);
    this.link.write(REGISTERED, this.registrations.slice(1).map(registrationText).join(";"));
    this.lead(this.panes[0]!);
    this.panes.slice(1).forEach((pane, index) => void this.saved.savePoints(pane.data.slide.slide_id, clicked[0]!, clicked[index + 1]!));
  }

  private reset(): void {
    this.registrations = this.panes.map(() => SAME);
    // Otherwise a saved alignment would be applied when the link is opened again.
    this.link.write(REGISTERED, this.registrations.slice(1).map(registrationText).join(";"));
    this.say("");
    this.lead(this.panes[0]!);
  }

  private say(text?: string): void {
    const waiting = this.panes.findIndex(({ anchors }) => anchors.length < 2);
    const prompt = this.isRegistering ? `View ${waiting + 1}: click ${this.panes[waiting]?.anchors.length ? "the second" : "the first"} point, the same in every view.` : "";
    this.hint.textContent = text ?? prompt;
    this.registering.setAttribute("aria-pressed", String(this.isRegistering));
    this.panes.forEach((pane) => pane.draw());
  }

  private write(): void {
    this.link.write(AT, viewText(this.onFirst(this.leading ?? this.panes[0]!, (this.leading ?? this.panes[0]!).navigation.view())));
  }
}

function registrationsOf(text: string | null, count: number): Registration[] {
  const registrations = (text ?? "").split(";").map(registrationFrom);
  return [SAME, ...Array.from({ length: count - 1 }, (_, index) => registrations[index] ?? SAME)];
}
