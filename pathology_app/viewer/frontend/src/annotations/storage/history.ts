// What was done, step by step, and back.
import type { Content } from "./types";

/** One annotation before and after a step; null where it was not there. */
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

  /** What is to be put in place to take the last step back. */
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

  /** What was drawn here goes under another id from now on: its old one is somebody else's. */
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
