// The current hotspot, and the visible ones: those of the displayed class that reach the threshold.
import type { Transform } from "../view/geometry";
import { reaches } from "../layers/style";
import type { Navigation } from "../view/navigation";
import type { Status } from "../panel/status";
import type { Hotspot } from "../types";

export class Hotspots {
  /** The hotspot visited last, by its index in the list. */
  current: number | null = null;
  private all: Hotspot[] = [];
  private threshold = 0;
  private isInView = false;

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

  /** Hotspots to draw. With the overlay off, the current one stays, so that the tissue in it can be inspected. */
  shown(withOthers: boolean): number[] {
    const reached = withOthers ? this.reached() : [];
    return this.current === null || reached.includes(this.current) ? reached : [...reached, this.current];
  }

  /** Go to the next hotspot that reaches the threshold; after the last comes the first. */
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
      this.isInView = true;
      this.navigation.showSquare(hotspot.x_px0, hotspot.y_px0, hotspot.side_px0);
      this.status.place(`Hotspot ${index + 1} of ${this.all.length} · ${hotspot.label}`);
    }
  }

  leave(): void {
    this.isInView = false;
    this.status.place("");
  }

  /** Clear the status when the current hotspot has left the screen; movements towards it do not count. */
  look(transform: Transform, width: number, height: number): void {
    const hotspot = this.current === null ? undefined : this.all[this.current];
    if (!this.isInView || !hotspot || this.navigation.isMoving()) {
      return;
    }
    const { x, y } = transform.toScreen({ x: hotspot.x_px0, y: hotspot.y_px0 });
    if (x < 0 || y < 0 || x > width || y > height) {
      this.leave();
    }
  }

  private reached(): number[] {
    return this.all.flatMap(({ score }, index) => (reaches(score, this.threshold) ? [index] : []));
  }
}
