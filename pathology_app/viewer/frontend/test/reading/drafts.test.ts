import assert from "node:assert/strict";
import { test } from "node:test";
import { Drafts, type Store } from "../../src/reading/drafts";

class Memory implements Store {
  readonly map = new Map<string, string>();
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
    this.map.set(key, value);
  }
  removeItem(key: string): void {
    this.map.delete(key);
  }
}

const ADA = { owner: "ada", title: "Study s, session 1, slide 1", link: "?study=s&view=read" };
const BOB = { ...ADA, owner: "bob" };

test("drafts are kept for their owner alone, until the server has them or they are signed", () => {
  const store = new Memory();
  let now = 0;
  const drafts = new Drafts(store, () => now);
  assert.equal(drafts.write("one", { remarks: "half a" }, ADA), true);
  assert.deepEqual([drafts.read("one", "ada"), drafts.read("one", "bob"), drafts.read("two", "ada")], [{ remarks: "half a" }, {}, {}]);
  now = 900 * 24 * 3600 * 1000;
  drafts.sweep();
  assert.deepEqual(drafts.read("one", "ada"), { remarks: "half a" }, "however old they are");
  drafts.write("two", { remarks: "new" }, { ...ADA, title: "newer" });
  drafts.write("three", { remarks: "other" }, BOB);
  assert.deepEqual(drafts.of("ada").map(({ title }) => title), ["newer", ADA.title]);
  drafts.write("one", {}, ADA);
  assert.deepEqual(drafts.of("ada").map(({ title }) => title), ["newer"]);
});

test("damaged copies are deleted, those of other programs are not, and the number is bounded", () => {
  const store = new Memory();
  let now = 0;
  const drafts = new Drafts(store, () => now++);
  store.setItem("gemslide.reading broken", "{");
  store.setItem("gemslide.reading nobody's", JSON.stringify({ at: 1, values: {} }));
  store.setItem("of another", "x");
  for (let number = 0; number < 510; number++) {
    drafts.write(`place ${number}`, { sure: number }, ADA);
  }
  drafts.sweep();
  assert.equal(store.length, 501);
  assert.equal(store.getItem("of another"), "x");
  assert.deepEqual([drafts.read("place 0", "ada"), drafts.read("place 509", "ada")], [{}, { sure: 509 }]);
});

test("a browser that keeps nothing says so", () => {
  const full = new Memory();
  full.setItem = () => {
    throw new DOMException("full", "QuotaExceededError");
  };
  assert.equal(new Drafts(full).write("one", { sure: 1 }, ADA), false);
  assert.equal(new Drafts(null).write("one", { sure: 1 }, ADA), false);
});
