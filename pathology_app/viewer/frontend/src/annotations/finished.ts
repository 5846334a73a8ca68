// A finished drawing becomes an annotation, a count, a stroke of the brush, or a question to the server.
import { capsules } from "./drawing/stroke";
import { pathsOf } from "./drawing/shapes";
import type { DrawingName } from "./drawing/tools";
import type { Editor } from "./editor";
import { type AnnotationApi, Refused } from "./storage/api";
import type { TextPrompt } from "./text_prompt";
import type { Geometry, Kind } from "./types";

export interface FinishedHost {
  mpp0: number;
  /** Screen pixels per level-0 pixel. */
  scale(): number;
  brush_px(): number;
  tolerance(): number;
  placeCount(region: Geometry): void;
  failed(error: Refused): void;
}

export class Finished {
  constructor(
    private readonly api: AnnotationApi,
    private readonly editor: Editor,
    private readonly textPrompt: TextPrompt,
    private readonly host: FinishedHost,
  ) {}

  done(tool: DrawingName, geometry: Geometry): void {
    if (tool === "split") {
      void this.editor.split(geometry);
    } else if (tool === "count") {
      this.host.placeCount(geometry);
    } else if (tool === "text") {
      this.textPrompt.ask((note) => this.editor.add("text", geometry, { note }));
    } else if (tool === "brush" || tool === "eraser") {
      const radius_px0 = this.host.brush_px() / this.host.scale();
      void this.editor.brush(capsules(pathsOf(geometry)[0]!.points, radius_px0), tool === "eraser");
    } else if (tool === "wand") {
      void this.fill(geometry);
    } else {
      this.editor.add(tool as Kind, geometry);
    }
  }

  /** The wand: fill tissue of a similar stain around a point. */
  private async fill(geometry: Geometry): Promise<void> {
    const [at] = pathsOf(geometry)[0]!.points;
    const mpp = this.host.mpp0 / this.host.scale();
    try {
      const areas = await this.api.wand({ x_px0: at!.x, y_px0: at!.y, mpp, tolerance: this.host.tolerance() });
      await this.editor.brush(areas, false);
    } catch (error) {
      if (!(error instanceof Refused)) {
        throw error;
      }
      this.host.failed(error);
    }
  }
}
