// Own drawings that others changed or deleted: the author is told, and can put their own last version back.
import type { Editor } from "./editor";
import { type AnnotationApi, Refused } from "./storage/api";
import type { Model } from "./storage/model";
import type { Annotation } from "./types";

export class OwnChanges {
  /** Not yet accepted or restored. */
  list: Annotation[] = [];

  constructor(
    private readonly api: AnnotationApi,
    private readonly model: Model,
    private readonly editor: Editor,
    private readonly events: { changed(): void; failed(error: unknown): void },
  ) {}

  async ask(): Promise<void> {
    try {
      this.list = await this.api.changedByOthers();
      this.events.changed();
    } catch (error) {
      if (!(error instanceof Refused)) {
        throw error;
      }
      // Asked again after the next change on the slide.
    }
  }

  /** Put the author's own last version of an annotation back. */
  async restore(annotation: Annotation): Promise<void> {
    try {
      const { own } = await this.api.about(annotation.id);
      this.model.learn([annotation], true);
      this.editor.apply("restore", [[annotation.id, { ...(own ?? annotation), deleted: false }]]);
      this.without([annotation.id]);
    } catch (error) {
      this.events.failed(error);
    }
  }

  /** Leave annotations as others made them. */
  async accept(ids: string[]): Promise<void> {
    try {
      await this.api.noted(ids);
      this.without(ids);
    } catch (error) {
      this.events.failed(error);
    }
  }

  private without(ids: string[]): void {
    this.list = this.list.filter(({ id }) => !ids.includes(id));
    this.events.changed();
  }
}
