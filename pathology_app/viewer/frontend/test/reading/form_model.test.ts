import assert from "node:assert/strict";
import { test } from "node:test";
import { Drafts, FormModel, type Question, type Store } from "../../src/reading/form_model";

const base = { choices: [], low: 0, high: 100, max_length: 1000 };
const DIAGNOSIS: Question = { ...base, name: "diagnosis", ask: "What is it?", kind: "choice", choices: ["benign", "malignant"], required: true };
const SURE: Question = { ...base, name: "sure", ask: "How sure?", kind: "score", required: true };
const REMARKS: Question = { ...base, name: "remarks", ask: "Anything?", kind: "text", required: false };
const QUESTIONS = [DIAGNOSIS, SURE, REMARKS];

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

test("the summary lists the answers that are sent with the signature, as entered in the fields", () => {
  const model = new FormModel(QUESTIONS, { diagnosis: "benign", sure: 80 }, {});
  model.set(SURE, 85);
  model.set(REMARKS, "small biopsy");
  assert.equal(model.summary, "Signing locks: diagnosis: benign; sure: 85; remarks: small biopsy.");
  assert.deepEqual(model.values, { diagnosis: "benign", sure: 85, remarks: "small biopsy" });
  assert.deepEqual(model.unkept, { sure: 85, remarks: "small biopsy" });
});

test("a form with a missing or invalid answer cannot be signed", () => {
  const model = new FormModel(QUESTIONS, { diagnosis: "benign" }, {});
  assert.equal(model.summary, "Still to answer: sure.");
  for (const value of [101, -1, NaN]) {
    assert.match(model.set(SURE, value) ?? "", /a number from 0 to 100/);
    assert.equal(model.maySign, false);
    assert.deepEqual(model.unkept, {});
  }
  model.set(SURE, 0);
  assert.equal(model.maySign, true);
});

test("an answer can be replaced but not removed", () => {
  const model = new FormModel(QUESTIONS, { diagnosis: "benign", sure: 80 }, {});
  assert.match(model.set(SURE, null) ?? "", /can be replaced but not removed/);
  assert.equal(model.maySign, false, "else another number were signed than is shown");
});

test("a reload restores typed answers, and answers from another tab appear in untouched fields", () => {
  const model = new FormModel(QUESTIONS, { sure: 80 }, { sure: 90, remarks: "half a", diagnosis: "no such choice" });
  assert.deepEqual(model.values, { sure: 90, remarks: "half a" });
  assert.deepEqual(model.take({ sure: 70, diagnosis: "malignant" }), ["diagnosis"]);
  assert.deepEqual(model.values, { sure: 90, remarks: "half a", diagnosis: "malignant" });
});

test("drafts are stored by reading, and removed when the server has them or after two weeks", () => {
  const store = new Memory();
  let now = 0;
  const drafts = new Drafts(store, () => now);
  drafts.write("one", { remarks: "half a" });
  assert.deepEqual([drafts.read("one"), drafts.read("two")], [{ remarks: "half a" }, {}]);
  store.setItem("gemslide.reading broken", "{");
  store.setItem("of another", "x");
  now = 15 * 24 * 3600 * 1000;
  drafts.write("two", { remarks: "new" });
  drafts.sweep();
  assert.deepEqual([...store.map.keys()].sort(), ["gemslide.reading two", "of another"]);
  drafts.write("two", {});
  assert.deepEqual([...store.map.keys()], ["of another"]);
});
