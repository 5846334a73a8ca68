// The canvas over the slide, cleared and redrawn whenever the slide moves.
import { box } from "../panel/elements";
import type { Transform } from "../view/geometry";
import { drawHotspots, drawProbe } from "./drawing";
import type { Hotspot, Probe } from "../types";

export interface Sheet {
  context: CanvasRenderingContext2D;
  /** Device pixels per CSS pixel. */
  ratio: number;
}

export class Picture {
  readonly canvas = document.createElement("canvas");
  /** The model's result at the probed point, shown beside it. */
  readonly probeText = box("probe panel");

  constructor(
    parent: HTMLElement,
    private readonly stage: HTMLElement,
  ) {
    this.canvas.className = "marks";
    parent.append(this.canvas);
  }

  /** Clear the canvas and draw on it, in CSS pixels of the stage. */
  draw(on: (sheet: Sheet) => void): void {
    const ratio = window.devicePixelRatio;
    const [width, height] = [this.stage.clientWidth, this.stage.clientHeight];
    const [deviceWidth, deviceHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== deviceWidth || this.canvas.height !== deviceHeight) {
      [this.canvas.width, this.canvas.height] = [deviceWidth, deviceHeight];
    }
    const context = this.canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    on({ context, ratio });
  }

  drawMarks(transform: Transform, hotspots: Hotspot[], shown: number[], current: number | null, probe: Probe | null): void {
    const context = this.canvas.getContext("2d")!;
    drawHotspots(context, transform, hotspots, shown, current);
    this.probeText.textContent = probe?.text ?? "";
    if (probe) {
      drawProbe(context, transform, probe);
      const { x, y } = transform.toScreen({ x: probe.x_px0, y: probe.y_px0 });
      // Beside the point, on the side with more space.
      const shift = x > this.stage.clientWidth / 2 ? "-100%" : "0px";
      const gap = shift === "0px" ? 14 : -14;
      this.probeText.style.transform = `translate(calc(${x + gap}px + ${shift}), ${y + 12}px)`;
    }
  }
}
