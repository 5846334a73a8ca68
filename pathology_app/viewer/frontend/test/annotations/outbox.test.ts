import assert from "node:assert/strict";
import { test } from "node:test";
import { History } from "../../src/annotations/storage/history";
import { Outbox, type Store } from "../../src/annotations/storage/outbox";
import { rectangle } from "../../src/annotations/drawing/shapes";
import type { Content, Draft } from "../../src/annotations/types";

/** The browser's storage, as far as it goes. */
class Memory implements Store {
  readonly map = new Map<string, string>();
  constructor(private readonly room = Infinity) {}
  get length(): number {
    return this.map.size;
  }
  key(index: number): string | null {
    return [...this.map.keys()][index] ?? null;
  }
  getItem(key: string): string | null {
    return this.map.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    if (value.length > this.room) {
      throw new Error("no room");
    }
    this.map.set(key, value);
  }
  removeItem(key: string): void {
    this.map.delete(key);
  }
}

const content: Content = { kind: "rectangle", object_type: "annotation", geometry: rectangle({ x: 0, y: 0 }, { x: 1, y: 1 }), class: null, note: "", deleted: false, parent: null, view: null };
const draft = (id: string, note = ""): Draft => ({ ...content, id, note, revision: 0 });

test("entries of a closed tab are adopted in their last state, and only once", () => {
  const store = new Memory();
  const gone = new Outbox(store, "p/S-1", "gone", "ada");
  gone.put(draft("a", "first"));
  gone.put(draft("a", "last"));
  new Outbox(store, "p/S-1", "alive", "ada").put(draft("b"));
  new Outbox(store, "p/S-10", "gone", "ada").put(draft("c"));
  const mine = new Outbox(store, "p/S-1", "mine", "ada");

  assert.deepEqual(mine.adopt(new Set(["alive"])).map((entry) => entry.draft.note), ["last"]);
  assert.equal(mine.adopt(new Set(["alive"])).length, 0);
  assert.equal(new Outbox(store, "p/S-1", "next", "ada").adopt(new Set(["alive", "mine"])).length, 0);
});

test("an adopted entry does not replace a newer one", () => {
  const store = new Memory();
  new Outbox(store, "p", "gone", "ada").put(draft("a", "old"));
  const mine = new Outbox(store, "p", "mine", "ada");
  mine.put(draft("a", "new"));
  mine.adopt(new Set());
  assert.equal(mine.get("a")?.draft.note, "new");
});

test("entries of another user are not sent, nor refused entries until they are changed", () => {
  const outbox = new Outbox(new Memory(), "p", "t", "ada");
  outbox.put(draft("a"));
  outbox.put(draft("b"), "no such class");
  outbox.me = "bob";
  assert.equal(outbox.ready().length, 0);
  outbox.me = "ada";
  assert.deepEqual(outbox.ready().map((entry) => entry.draft.id), ["a"]);
  outbox.put(draft("b", "mended"));
  assert.equal(outbox.ready().length, 2);
});

test("if the browser's storage is full, entries stay in the page and the outbox reports it", () => {
  for (const store of [new Memory(10), null]) {
    const outbox = new Outbox(store, "p", "t", "ada");
    outbox.put(draft("a"));
    assert.deepEqual([outbox.isKept, outbox.ready().length], [false, 1]);
  }
});

test("corrupt entries in the storage are skipped", () => {
  const store = new Memory();
  store.setItem("p/x/a", "{");
  store.setItem("p/x/b", "null");
  store.setItem("p/x/c", '{"draft": {"id": 7}}');
  assert.equal(new Outbox(store, "p", "t", "ada").adopt(new Set()).length, 0);
});

test("steps can be undone and redone, and a new step clears the redo history", () => {
  const history = new History();
  history.add({ label: "draw", items: [{ id: "a", before: null, after: content }] });
  history.add({ label: "note", items: [{ id: "a", before: content, after: { ...content, note: "n" } }] });
  assert.deepEqual(history.undo(), [["a", content]]);
  assert.deepEqual(history.undo(), [["a", { ...content, deleted: true }]]);
  assert.deepEqual(history.undo(), []);
  assert.deepEqual(history.redo(), [["a", content]]);
  history.rename("a", "b");
  assert.deepEqual(history.redo(), [["b", { ...content, note: "n" }]]);
  history.undo();
  history.add({ label: "move", items: [] });
  assert.equal(history.redoes, null);
});
