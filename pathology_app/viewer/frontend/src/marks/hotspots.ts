// Which hotspot one looks at, and which are shown: those of the class on the screen that reach the threshold.
import type { Transform } from "./geometry";
import type { Navigation } from "./navigation";
import type { Status } from "./status";
import type { Hotspot } from "./types";

export class Hotspots {
  /** The one gone to last, by its place in the list. */
  current: number | null = null;
  private all: Hotspot[] = [];
  private threshold = 0;
  private isThere = false;

  constructor(
    private readonly navigation: Navigation,
    private readonly status: Status,
  ) {}

  replace(hotspots: Hotspot[], threshold: number): void {
    this.all = hotspots;
    this.threshold = threshold;
    if (this.current !== null && this.current >= hotspots.length) {
      this.leave();
      this.current = null;
    }
  }

  setThreshold(threshold: number): void {
    this.threshold = threshold;
  }

  /** Those to be drawn. With the overlay off, the one gone to stays: that is when one looks at the tissue in it. */
  shown(withOthers: boolean): number[] {
    const reached = withOthers ? this.reached() : [];
    return this.current === null || reached.includes(this.current) ? reached : [...reached, this.current];
  }

  /** To the next one that reaches the threshold, from the first after the last. */
  next(step: 1 | -1): void {
    const reached = this.reached();
    if (reached.length === 0) {
      this.status.place(this.all.length ? "No hotspot reaches the threshold." : "");
      return;
    }
    const from = this.current ?? (step === 1 ? -1 : this.all.length);
    const onward = step === 1 ? reached.find((index) => index > from) : reached.findLast((index) => index < from);
    this.show(onward ?? reached[step === 1 ? 0 : reached.length - 1]!);
  }

  show(index: number): void {
    const hotspot = this.all[index];
    if (hotspot) {
      this.current = index;
      this.isThere = true;
      this.navigation.showSquare(hotspot.x_px0, hotspot.y_px0, hotspot.side_px0);
      this.status.place(`Hotspot ${index + 1} of ${this.all.length} · ${hotspot.label}`);
    }
  }

  leave(): void {
    this.isThere = false;
    this.status.place("");
  }

  /** Say no more that one looks at a hotspot when it has left the screen. The way there does not count. */
  look(transform: Transform, width: number, height: number): void {
    const hotspot = this.current === null ? undefined : this.all[this.current];
    if (!this.isThere || !hotspot || this.navigation.isMoving()) {
      return;
    }
    const { x, y } = transform.toScreen({ x: hotspot.x_px0, y: hotspot.y_px0 });
    if (x < 0 || y < 0 || x > width || y > height) {
      this.leave();
    }
  }

  private reached(): number[] {
    return this.all.flatMap(({ score }, index) => (score >= this.threshold ? [index] : []));
  }
}
