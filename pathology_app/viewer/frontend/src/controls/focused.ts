// A stack in focus: its planes in OpenSeadragon, the control beside the slide, and the link.
import type OpenSeadragon from "openseadragon";
import { atPlane, FocalPlanes } from "../tiles/focal_planes";
import type { PlanesInfo, Slide } from "../types";
import { FocusControl, heightText, planeOf } from "./focus";

export class Focus {
  private readonly planes: FocalPlanes;
  private readonly control: FocusControl;
  private readonly info: PlanesInfo;

  /**
   * @param linked the link's height, if any.
   * @param sourceOf the tiles of the slide at a plane.
   * @param changed called when another plane is wanted, and when it is on the screen.
   */
  constructor(
    osd: OpenSeadragon.Viewer,
    private readonly slide: Slide & { planes: PlanesInfo },
    linked: string | null,
    sourceOf: (slide: Slide) => OpenSeadragon.TileSource,
    private readonly changed: (focus: Focus) => void,
  ) {
    this.info = slide.planes;
    const { heights_um, first } = this.info;
    this.planes = new FocalPlanes(osd, heights_um.length, first, (plane) => sourceOf(atPlane(slide, plane)), () => this.show());
    this.control = new FocusControl(this.info, (plane) => this.choose(plane));
    this.choose(planeOf(linked, this.info) ?? first);
  }

  get element(): HTMLElement {
    return this.control.element;
  }

  /** Number of the plane on the screen. */
  get onScreen(): number {
    return this.planes.onScreen;
  }

  /** Whether the plane that is wanted and its neighbours are loaded. */
  get isReady(): boolean {
    return this.planes.isReady;
  }

  /** The slide at the plane that is wanted. */
  get slideNow(): Slide {
    return atPlane(this.slide, this.planes.plane);
  }

  /** Height of the plane on the screen. */
  get text(): string {
    return heightText(this.info.heights_um[this.onScreen]!);
  }

  /** For the link: the wanted height; "" for the first. */
  get linkText(): string {
    const { plane } = this.planes;
    return plane === this.info.first ? "" : String(this.info.heights_um[plane]);
  }

  step(by: 1 | -1): void {
    this.control.step(by);
  }

  close(): void {
    this.planes.close();
  }

  private choose(plane: number): void {
    this.planes.show(plane);
    this.show();
  }

  private show(): void {
    const { plane, onScreen } = this.planes;
    this.control.show(plane, plane !== onScreen);
    this.changed(this);
  }
}
