// Undo and redo history.
import type { Content } from "../types";

/** One annotation before and after a step; `before` is null if it did not exist. */
export interface Item {
  id: string;
  before: Content | null;
  after: Content;
}

export interface Step {
  label: string;
  items: Item[];
}

const MOST_STEPS = 200;

export class History {
  private readonly done: Step[] = [];
  private readonly undone: Step[] = [];

  get undoes(): string | null {
    return this.done.at(-1)?.label ?? null;
  }

  get redoes(): string | null {
    return this.undone.at(-1)?.label ?? null;
  }

  add(step: Step): void {
    this.done.push(step);
    this.undone.length = 0;
    if (this.done.length > MOST_STEPS) {
      this.done.shift();
    }
  }

  /** Undo the last step. @returns the contents to restore. */
  undo(): [string, Content][] {
    const step = this.done.pop();
    if (!step) {
      return [];
    }
    this.undone.push(step);
    return step.items.map(({ id, before, after }) => [id, before ?? { ...after, deleted: true }]);
  }

  redo(): [string, Content][] {
    const step = this.undone.pop();
    if (!step) {
      return [];
    }
    this.done.push(step);
    return step.items.map(({ id, after }) => [id, after]);
  }

  /** Change the id of an annotation, because another user's version keeps the old id. */
  rename(id: string, newId: string): void {
    for (const { items } of [...this.done, ...this.undone]) {
      items.forEach((item) => {
        if (item.id === id) {
          item.id = newId;
        }
      });
    }
  }
}
