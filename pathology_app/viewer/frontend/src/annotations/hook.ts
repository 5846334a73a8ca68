// What a browser test may ask of annotations.
import type { Annotations } from "./annotations";
import { type Content, totalOf } from "./types";

export interface AnnotationHook {
  /** The server has answered, and every tile that is seen is there and painted. */
  isSettled(): boolean;
  isSaved(): boolean;
  state(): string;
  said(): string;
  inHand(): string | null;
  chosen(): string[];
  /** Those known one by one that are not deleted. */
  shown(): Content[];
  /** How many the slide has, as the server said last. */
  total(): number;
}

export function hookOf(annotations: Annotations): AnnotationHook {
  const { sync, tiles, model, editor, panel } = annotations;
  return {
    isSettled: () => sync.outbox !== null && tiles.isSettled,
    isSaved: () => sync.summary !== null && sync.isSaved,
    state: () => sync.state,
    said: () => panel.said,
    inHand: () => annotations.inHand,
    chosen: () => editor.chosen,
    shown: () => [...model.shown()].map(([, content]) => content),
    total: () => (sync.summary ? totalOf(sync.summary) : 0),
  };
}
