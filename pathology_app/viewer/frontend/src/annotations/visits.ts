// Finds annotations on the slide, goes to them, and imports a file of them.
import type { Surroundings } from "./annotating";
import { boundsOfGeometry } from "./drawing/shapes";
import type { Editor } from "./editor";
import type { AnnotationApi } from "./storage/api";
import type { Model } from "./storage/model";
import type { Annotation } from "./types";

/** Largest file that a page may send (pathology_app/annotating/bodies.py). */
const MOST_BYTES = 16 * 2 ** 20;
const SMALLEST_VIEW_PX0 = 200;

export interface VisitsHost {
  say(text: string): void;
  failed(error: unknown): void;
  /** A file was imported. */
  imported(): void;
}

export class Visits {
  constructor(
    private readonly api: AnnotationApi,
    private readonly model: Model,
    private readonly editor: Editor,
    private readonly around: Surroundings,
    private readonly host: VisitsHost,
  ) {}

  async find(words: string): Promise<Annotation[]> {
    try {
      return await this.api.found(words);
    } catch (error) {
      this.host.failed(error);
      return [];
    }
  }

  goTo(annotation: Annotation): void {
    this.model.learn([annotation], true);
    this.show(annotation.id);
  }

  async goToId(id: string): Promise<void> {
    try {
      if (this.model.content(id) === null) {
        this.model.learn(await this.api.some([id]), true);
      }
    } catch (error) {
      this.host.failed(error);
    }
    this.show(id);
  }

  importFile(file: File): void {
    if (file.size > MOST_BYTES) {
      this.host.say("Larger than 16 MiB: import it with gemslide annotations import.");
      return;
    }
    this.host.say(`Importing ${file.name}…`);
    void this.api.import(file).then(
      ({ saved, unchanged, beside, dropped }) => {
        const parts = [`${saved} imported`, unchanged && `${unchanged} already present`, beside && `${beside} added beside versions changed here in the meantime`, dropped && `${dropped} could not be imported`];
        this.host.say(`${parts.filter(Boolean).join(", ")}.`);
        this.host.imported();
      },
      (error: unknown) => this.host.failed(error),
    );
  }

  /** Select an annotation that is known, and show it. */
  private show(id: string): void {
    const annotation = this.model.content(id);
    if (!annotation || annotation.deleted) {
      this.host.say("This annotation has been deleted.");
      return;
    }
    this.editor.choose(id);
    const [left, top, right, bottom] = boundsOfGeometry(annotation.geometry);
    const side = Math.max(SMALLEST_VIEW_PX0, 1.6 * Math.max(right - left, bottom - top));
    this.around.showBox((left + right - side) / 2, (top + bottom - side) / 2, side, side);
  }
}
