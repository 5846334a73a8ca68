// Test hooks: the state of annotations for browser tests.
import type { Annotations } from "./controller";
import { type Content, totalOf } from "./types";

export interface AnnotationHook {
  /** The server has answered, and every visible tile is loaded and painted. */
  isSettled(): boolean;
  isSaved(): boolean;
  state(): string;
  said(): string;
  inHand(): string | null;
  chosen(): string[];
  /** Individually known annotations that are not deleted. */
  shown(): Content[];
  /** Number of annotations on the slide, as last reported by the server. */
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
