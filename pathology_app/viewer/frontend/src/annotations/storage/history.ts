// Undo and redo history of one tab, kept by the browser through a reload.
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

/** The part of `sessionStorage` that is used. */
export type TabStore = Pick<Storage, "getItem" | "setItem" | "removeItem">;

const MOST_STEPS = 200;
/** Most characters kept through a reload; older steps are then forgotten. */
const MOST_CHARACTERS = 1_000_000;

export class History {
  private done: Step[] = [];
  private undone: Step[] = [];
  private store: TabStore | null = null;
  private key = "";

  get undoes(): string | null {
    return this.done.at(-1)?.label ?? null;
  }

  get redoes(): string | null {
    return this.undone.at(-1)?.label ?? null;
  }

  /** The step that an undo, or a redo, would change. */
  next(isRedo: boolean): Step | null {
    return (isRedo ? this.undone : this.done).at(-1) ?? null;
  }

  /** Restore the steps of this tab from before a reload. @param key names project, slide and person. */
  restore(store: TabStore | null, key: string): void {
    [this.store, this.key] = [store, key];
    const kept = read(store, key);
    this.done = [...kept, ...this.done];
    this.keep();
  }

  add(step: Step): void {
    this.done.push(step);
    this.undone.length = 0;
    if (this.done.length > MOST_STEPS) {
      this.done.shift();
    }
    this.keep();
  }

  /** Undo the last step. @returns the contents to restore. */
  undo(): [string, Content][] {
    const step = this.done.pop();
    if (!step) {
      return [];
    }
    this.undone.push(step);
    this.keep();
    return step.items.map(({ id, before, after }) => [id, before ?? { ...after, deleted: true }]);
  }

  redo(): [string, Content][] {
    const step = this.undone.pop();
    if (!step) {
      return [];
    }
    this.done.push(step);
    this.keep();
    return step.items.map(({ id, after }) => [id, after]);
  }

  /** Forget the next step, which others have made impossible. */
  drop(isRedo: boolean): void {
    (isRedo ? this.undone : this.done).pop();
    this.keep();
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
    this.keep();
  }

  private keep(): void {
    if (!this.store) {
      return;
    }
    const kept: string[] = [];
    let length = 0;
    for (const step of this.done.toReversed()) {
      const text = JSON.stringify(step);
      length += text.length;
      if (length > MOST_CHARACTERS) {
        break;
      }
      kept.unshift(text);
    }
    try {
      this.store.setItem(this.key, `[${kept.join(",")}]`);
    } catch {
      this.store = null; // full or forbidden: undo lasts as long as the page
    }
  }
}

function read(store: TabStore | null, key: string): Step[] {
  try {
    const steps = JSON.parse(store?.getItem(key) ?? "[]") as unknown;
    return Array.isArray(steps) ? steps.filter(isStep) : [];
  } catch {
    return [];
  }
}

function isStep(value: unknown): value is Step {
  const step = value as Partial<Step> | null;
  return typeof step?.label === "string" && Array.isArray(step.items) && step.items.every(({ id, after }) => typeof id === "string" && typeof after?.geometry === "object");
}
