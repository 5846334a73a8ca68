import assert from "node:assert/strict";
import { test } from "node:test";
import { agreedAnswers, answerOfKey, FormModel, type Other, type Question, readersByAnswer } from "../../src/reading/form_model";

const base = { choices: [], low: 0, high: 100, max_length: 1000 };
const DIAGNOSIS: Question = { ...base, name: "diagnosis", ask: "What is it?", kind: "choice", choices: ["benign", "malignant"], required: true };
const SURE: Question = { ...base, name: "sure", ask: "How sure?", kind: "score", required: true };
const REMARKS: Question = { ...base, name: "remarks", ask: "Anything?", kind: "text", required: false };
const QUESTIONS = [DIAGNOSIS, SURE, REMARKS];

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

test("questions on which all readers agree are filled in, and stored only once their reader has touched them", () => {
  const others: Other[] = [
    { name: "r1", answers: { diagnosis: "benign", sure: 80, remarks: "same words" } },
    { name: "r2", answers: { diagnosis: "benign", sure: 60, remarks: "same words" } },
  ];
  assert.deepEqual(agreedAnswers(QUESTIONS, others), { diagnosis: "benign" }, "free text is nobody else's");
  assert.deepEqual(agreedAnswers(QUESTIONS, others.slice(0, 1)), {}, "one reader agrees with nobody");
  assert.deepEqual(readersByAnswer(SURE, others), [[80, ["r1"]], [60, ["r2"]]]);
  assert.deepEqual(readersByAnswer(DIAGNOSIS, others), [["benign", ["r1", "r2"]]]);
  const model = new FormModel(QUESTIONS, {}, {}, agreedAnswers(QUESTIONS, others));
  assert.deepEqual([model.values, model.unkept, model.isFilled("diagnosis")], [{ diagnosis: "benign" }, {}, true]);
  assert.equal(model.unanswered()?.name, "sure");
  model.set(SURE, 70);
  assert.equal(model.summary, "Signing locks: diagnosis: benign; sure: 70; remarks: –.");
  assert.deepEqual(model.unkept, { sure: 70 });
  model.set(DIAGNOSIS, "benign");
  assert.deepEqual([model.unkept, model.isFilled("diagnosis")], [{ diagnosis: "benign", sure: 70 }, false]);
  const other = new FormModel(QUESTIONS, { diagnosis: "malignant" }, {}, { diagnosis: "benign" });
  assert.equal(other.values.diagnosis, "malignant", "an answer of one's own comes first");
});

test("a digit chooses an option, and y and n answer yes and no", () => {
  const yesNo: Question = { ...SURE, kind: "yes_no" };
  const answers = ["1", "2", "3", "0", "y"].map((key) => answerOfKey(DIAGNOSIS, key));
  assert.deepEqual(answers, ["benign", "malignant", null, null, null]);
  assert.deepEqual(["y", "n", "1", "x"].map((key) => answerOfKey(yesNo, key)), [true, false, null, null]);
  assert.deepEqual(["1", "y"].map((key) => answerOfKey(SURE, key)), [null, null]);
});

test("the next question is the first without an answer after this one, then the first of all", () => {
  const model = new FormModel(QUESTIONS, { sure: 80 }, {});
  assert.deepEqual([model.unanswered()?.name, model.unanswered("diagnosis")?.name, model.unanswered("remarks")?.name], ["diagnosis", "remarks", "diagnosis"]);
  model.set(DIAGNOSIS, "benign");
  model.set(REMARKS, "x");
  assert.equal(model.unanswered("diagnosis"), undefined);
});
