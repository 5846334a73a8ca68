// Two to four views that move together: several models over one slide, or the slides of a case.
import type { ToolChoice } from "../annotations/annotating";
import { SlidePicker } from "../cases/picker";
import { Keys } from "../controls/keys";
import { type LayerStyle, styleText } from "../layers/style";
import { keepHeight } from "../page/height";
import { Divider } from "../panel/divider";
import { box } from "../panel/elements";
import type { MeasuringTool } from "../tools/toolbar";
import type { CompareData } from "../types";
import type { Point } from "../view/geometry";
import { AT, LinkState, OVERLAY, viewOf, viewText } from "../view/link_state";
import type { View } from "../view/navigation";
import { compareCommands, type CompareKeys } from "./commands";
import { ComparePane, type PaneEvents } from "./pane";
import { ComparePanel } from "./panel";
import { back, missBy, moved, onFirst, onOther, type Registration, registrationFrom, registrationOf, registrationText, SAME } from "./registration";
import { SavedAlignments } from "./saved_alignment";
import { CompareToolbar } from "./toolbar";

const REGISTERED = "together";
/** Height that the page leaves below the views (html/style.py). */
const BELOW_PX = 8;

export class CompareViewer implements CompareKeys {
  readonly panes: ComparePane[];
  /** Registration of each pane's slide to the first one's. */
  registrations: Registration[];
  isLinked = true;
  /** The view that was pressed last: keys and tools are for it. */
  active: ComparePane;
  private readonly element = box("compare");
  private readonly hint = box("hint");
  private readonly toolbar: CompareToolbar;
  private readonly panel: ComparePanel;
  private readonly divider: Divider;
  private readonly picker: SlidePicker;
  private readonly link: LinkState;
  private readonly keys = new Map<ComparePane, Keys>();
  private readonly listeners = new AbortController();
  private readonly saved: SavedAlignments;
  private isRegistering = false;
  private opened = 0;

  /** @param emit asks the page for other views. */
  constructor(
    private readonly host: HTMLElement,
    public data: CompareData,
    private readonly emit: (name: "change", value: object) => void,
  ) {
    const { signal } = this.listeners;
    this.link = new LinkState(data.name, "compare");
    this.registrations = registrationsOf(this.link.read(REGISTERED), data.panes.length);
    this.panes = data.panes.map((pane) => new ComparePane(pane, this.link.read(OVERLAY), this.events(), signal));
    this.active = this.panes[0]!;
    this.picker = new SlidePicker(this.active.data.slide.slide_id, (add) => emit("change", { add }), signal);
    this.toolbar = new CompareToolbar(this, this.panes.find(({ first }) => first)?.first?.style ?? null, data.may_add ? this.picker.element : null);
    this.panel = new ComparePanel(this.panes, () => this.resized());
    this.divider = new Divider(this.panel.side.element, () => this.resized(), signal);
    const slideIds = data.panes.map(({ slide }) => slide.slide_id);
    const saved = { apply: (slideId: string, registration: Registration) => this.follow(slideId, registration), say: (text: string) => this.say(text) };
    this.saved = new SavedAlignments(slideIds, data.may_register ?? false, saved, signal);
    this.toolbar.aligning.append(this.saved.buttons);
    this.host.append(this.toolbar.element, this.saved.notes, this.hint, box("body", this.element, this.divider.element, this.panel.side.element), this.picker.dialog);
    this.divider.describe();
    for (const pane of this.panes) {
      const keys = new Keys(compareCommands(pane, this));
      this.keys.set(pane, keys);
      this.host.append(keys.element, pane.annotations.dialogs);
    }
    this.hint.setAttribute("role", "status");
    this.element.dataset["panes"] = String(this.panes.length);
    this.element.append(...this.panes.map((pane) => pane.element));
    this.listen();
    this.activate(this.active);
    keepHeight(this.host, this.element, signal, BELOW_PX);
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
      pane.element.addEventListener("pointermove", (event) => this.point(pane, pane.sight.pointOf(event)), { signal });
      pane.element.addEventListener("pointerleave", () => this.point(pane, null), { signal });
    }
    document.addEventListener("keydown", (event) => this.press(event), { signal, capture: true });
  }

  private press(event: KeyboardEvent): void {
    if (this.host.isConnected && !this.picker.dialog.open) {
      this.keys.get(this.active)!.press(event, this.element);
    }
  }

  private events(): PaneEvents {
    return {
      moved: (pane) => this.lead(pane),
      clicked: (pane, at) => this.clicked(pane, at),
      pressed: (pane) => this.activate(pane),
      isActive: (pane) => pane === this.active,
      openPanel: (title) => this.panel.side.open(title),
      toolChanged: (pane, tool) => this.toolChanged(pane, tool),
      wants: (pane, model) => this.emit("change", { view: this.panes.indexOf(pane), model }),
    };
  }

  /** Apply a new size of the views at once; OpenSeadragon would notice it only a moment later. */
  private resized(): void {
    this.divider.describe();
    this.panes.forEach(({ osd }) => osd.forceResize());
  }

  private activate(pane: ComparePane): void {
    this.active = pane;
    this.panes.forEach((each) => each.element.classList.toggle("is-active", each === pane && this.panes.length > 1));
    this.panel.show(pane);
    this.toolbar.showTool(pane.annotations.inHand, pane.annotations.isDrawing);
  }

  private toolChanged(pane: ComparePane, tool: ToolChoice | null): void {
    if (tool !== null) {
      this.stopRegistering();
    }
    if (pane === this.active) {
      this.toolbar.showTool(tool, pane.annotations.isDrawing);
    }
  }

  move(change: (pane: ComparePane) => void): void {
    change(this.active);
    this.lead(this.active);
  }

  whole(): void {
    this.move(({ navigation }) => navigation.showWhole());
  }

  magnify(magnification: number): void {
    this.move(({ navigation }) => navigation.magnify(magnification));
  }

  turn(degrees: number): void {
    this.move(({ navigation }) => navigation.turn(degrees));
    this.write();
  }

  mirror(): void {
    this.move(({ navigation }) => navigation.mirror());
    this.write();
  }

  take(tool: MeasuringTool): void {
    this.active.annotations.pressButton(tool);
    this.active.osd.canvas.focus();
  }

  annotate(): void {
    this.active.annotations.toggleAnnotating();
    this.active.osd.canvas.focus();
  }

  add(): void {
    if (this.data.may_add) {
      this.picker.open();
    } else {
      this.say(`No more than ${this.panes.length} slides fit side by side.`);
    }
  }

  nextPane(): void {
    const next = this.panes[(this.panes.indexOf(this.active) + 1) % this.panes.length]!;
    this.activate(next);
    next.osd.canvas.focus();
  }

  togglePanel(): void {
    this.panel.side.toggle();
  }

  listKeys(): void {
    this.keys.get(this.active)!.showList();
  }

  restyle(change: Partial<LayerStyle>): void {
    for (const { first, layers } of this.panes) {
      if (first) {
        Object.assign(first.style, change);
        layers.restyled(first);
      }
    }
    const first = this.panes.find((pane) => pane.first)?.first;
    this.link.write(OVERLAY, first ? styleText(first.style) : "");
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

  register(): void {
    if (this.stopRegistering()) {
      return;
    }
    this.panes.forEach(({ annotations }) => annotations.putAway());
    this.isRegistering = true;
    this.say();
  }

  stopRegistering(): boolean {
    const was = this.isRegistering;
    if (was) {
      this.isRegistering = false;
      this.panes.forEach((pane) => (pane.anchors = []));
      this.say();
    }
    return was;
  }

  /** Let the views move together, or each on its own. */
  setLinked(isLinked: boolean): void {
    this.isLinked = isLinked;
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

  reset(): void {
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
    this.toolbar.showRegistering(this.isRegistering);
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
