import assert from "node:assert/strict";
import { test } from "node:test";
import { circleAround } from "../../src/annotations/counting/circle";
import { Counter } from "../../src/annotations/counting/counter";
import { CountClasses } from "../../src/annotations/counting/classes";
import { tallyOf, wilsonInterval, withChanges } from "../../src/annotations/counting/tally";
import { clippedToSlide, insideShare, onSlide } from "../../src/annotations/drawing/clipping";
import { contrast, HALO_COLOURS } from "../../src/annotations/drawing/halo";
import { pathsOf, rectangle } from "../../src/annotations/drawing/shapes";
import { areasText, percent, sizesOf } from "../../src/annotations/drawing/sizes";
import { capsules } from "../../src/annotations/drawing/stroke";
import { Editor } from "../../src/annotations/editor";
import type { AnnotationApi } from "../../src/annotations/storage/api";
import { History } from "../../src/annotations/storage/history";
import { Model } from "../../src/annotations/storage/model";
import { type Entry, Outbox } from "../../src/annotations/storage/outbox";
import { type Annotation, type Counts, drawing } from "../../src/annotations/types";
import { areaOf } from "../../src/view/geometry";

const near = (actual: number, expected: number, within: number): void => assert.ok(Math.abs(actual - expected) <= within, `${actual} is not ${expected}`);
const at = (x: number, y: number) => ({ x, y });
const mark = (x: number, y: number, name: string) => drawing("mark", { type: "Point", coordinates: [x, y] }, { class: name, parent: "c" });

test("a counting circle has exactly its nominal area", () => {
  for (const area of [1, 2]) {
    near(sizesOf(circleAround(at(5000, 4000), area, 0.25), 0.25).area_um2 / 1e6, area, 1e-9);
  }
});

test("the part of a circle that lies on the slide is known before it is placed", () => {
  const ring = pathsOf(circleAround(at(0, 0), 1, 0.5))[0]!.points;
  near(insideShare(ring, 9000, 7000), 0.25, 1e-9);
  assert.equal(insideShare(ring.map(({ x, y }) => at(x - 5000, y)), 9000, 7000), 0);
  near(areaOf(clippedToSlide([at(-10, -10), at(10, -10), at(10, 10), at(-10, 10)], 100, 50)), 100, 1e-9);
});

test("drawings are cut at the slide's edge, with their holes and lines", () => {
  const cut = onSlide(rectangle(at(-50, 10), at(30, 40)), 100, 50)!;
  assert.deepEqual([Math.min(...pathsOf(cut)[0]!.points.map(({ x }) => x)), sizesOf(cut, 1).area_um2], [0, 900]);
  assert.equal(onSlide(rectangle(at(-50, 10), at(-30, 40)), 100, 50), null);
  const line = onSlide({ type: "LineString", coordinates: [[-20, 20], [20, 20], [20, 80]] }, 100, 50)!;
  assert.deepEqual(line, { type: "LineString", coordinates: [[0, 20], [20, 20], [20, 50]] });
  assert.equal(onSlide({ type: "Point", coordinates: [120, 5] }, 100, 50), null);
  const inside = rectangle(at(1, 1), at(9, 9));
  assert.equal(onSlide(inside, 100, 50), inside);
});

test("objects are counted by class inside the area only, and divided by what was scanned", () => {
  const count = { ...drawing("count", rectangle(at(0, 0), at(100, 100))), id: "c", author: "ada", changed_utc: "" };
  const areas = { area_mm2: 1, scanned_mm2: 0.057, tissue_mm2: 0.03 };
  const tally = tallyOf("Count 1", count, [mark(5, 5, "positive"), mark(6, 5, "positive"), mark(7, 7, "negative"), mark(500, 5, "negative")], areas);
  assert.deepEqual(tally.classes.map(({ class_name, number }) => [class_name, number]), [["negative", 1], ["positive", 2]]);
  assert.equal(tally.outside, 1);
  near(tally.classes[1]!.per_mm2!, 2 / 0.057, 1e-9);
  near(tally.classes[1]!.per_mm2_tissue!, 2 / 0.03, 1e-9);
  const later = withChanges(tally, new Map([["positive", -1], ["mitosis", 3]]));
  assert.deepEqual(later.classes.map(({ class_name, number }) => [class_name, number]), [["mitosis", 3], ["negative", 1], ["positive", 1]]);
});

test("an object is counted once, also when the server tells the counts before it confirms that the object is saved", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const outbox = new Outbox(null, "place", "tab", "ada");
  const model = new Model(() => outbox, () => undefined);
  const slide = { width_px0: 900, height_px0: 700 };
  let awaitsAnswer = false;
  let toldCounts: Counts = { change: 0, counts: [] };
  const api = { counts: async () => toldCounts, areas: async () => [{ area_mm2: 1, scanned_mm2: 1, tissue_mm2: null }] } as unknown as AnnotationApi;
  const editor = new Editor(model, api, slide, { changed: () => undefined, edited: () => undefined, say: assert.fail, askOthers: assert.fail });
  const host = { ...slide, mpp0: 1, middle: () => at(0, 0), say: () => undefined, changed: () => undefined, awaitsAnswer: () => awaitsAnswer };
  const counter = new Counter(api, model, editor, host, () => "positive");
  const number = (): number => counter.active!.classes.reduce((sum, { number }) => sum + number, 0);
  const askNow = async (): Promise<void> => {
    counter.refresh();
    t.mock.timers.tick(1000);
    await new Promise(setImmediate);
  };
  counter.place(rectangle(at(0, 0), at(100, 100)));
  counter.press(at(5, 5));
  const sent = outbox.all();
  const [{ draft: region }, { draft: object }] = sent as [Entry, Entry];
  const areas = { area_mm2: 1, scanned_mm2: 1, tissue_mm2: null };
  const tally = { ...tallyOf("Count 1", { ...region, author: "ada", changed_utc: "" }, [object], areas) };

  [awaitsAnswer, toldCounts] = [true, { change: 2, counts: [tally] }];
  await askNow();
  assert.equal(number(), 1);
  assert.ok(counter.undo());
  assert.equal(number(), 0);

  const confirmed = sent.map(({ draft }, index) => ({ ...draft, revision: 1, change: index + 1, author: "ada", changed_by: "ada", changed_utc: "" }));
  model.learn(confirmed as unknown as Annotation[], true);
  awaitsAnswer = false;
  await askNow();
  assert.equal(number(), 0);
});

test("shares have Wilson's interval", () => {
  const [low, high] = wilsonInterval(30, 40);
  near(low, 0.5981, 1e-4);
  near(high, 0.8581, 1e-4);
  assert.equal(wilsonInterval(0, 10)[0], 0);
});

test("sizes are stated with separators, and with what was scanned", () => {
  assert.equal(areasText({ area_mm2: 1, scanned_mm2: 0.057, tissue_mm2: 0.03 }), "1 mm², scanned 0.057 mm² (5.7 %), tissue 0.03 mm²");
  assert.equal(areasText({ area_mm2: 1234.5, scanned_mm2: 1234.5, tissue_mm2: null }), "1,230 mm², all scanned");
  assert.equal(percent(0.375), "37.5 %");
});

test("outlines are visible on pale H&E as on dark DAB", () => {
  const stains = { glass: "#f4f1f4", paleEosin: "#f2d7e3", eosin: "#d98cb3", haematoxylin: "#5b4a8a", dab: "#6b3d1e", darkDab: "#2f1a0c" };
  for (const [name, background] of Object.entries(stains)) {
    const best = Math.max(...HALO_COLOURS.map((colour) => contrast(colour, background)));
    assert.ok(best >= 4, `${name}: ${best}`);
  }
  assert.ok(contrast(HALO_COLOURS[0], HALO_COLOURS[1]) > 15);
});

test("a stroke of the brush covers what was painted, in a bounded number of pieces", () => {
  const dot = capsules([at(50, 50)], 10);
  near(sizesOf(dot[0]!, 1).area_um2, Math.PI * 100, 5);
  const spiral = Array.from({ length: 5000 }, (_, index) => at(500 + index * Math.cos(index / 20) / 10, 500 + index * Math.sin(index / 20) / 10));
  assert.ok(capsules(spiral, 5).length <= 300);
});

test("undo survives a reload in the same tab, and nothing of others is undone", () => {
  const kept = new Map<string, string>();
  const store = { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => void kept.set(key, value), removeItem: (key: string) => void kept.delete(key) };
  const before = new History();
  before.restore(store, "slide/ada");
  before.add({ label: "draw point", items: [{ id: "1", before: null, after: mark(1.004, 2, "positive") }] });

  const after = new History();
  after.restore(store, "slide/ada");
  assert.equal(after.undoes, "draw point");
  const other = new History();
  other.restore(store, "slide/bob");
  assert.equal(other.undoes, null);
  assert.equal(after.undo()[0]![1].deleted, true);
});

test("the classes to count are remembered, nine at most, and garbage is ignored", () => {
  const kept = new Map<string, string>();
  const store = { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => void kept.set(key, value) };
  const classes = new CountClasses(store);
  assert.deepEqual([classes.names, classes.current, classes.choose(2), classes.current], [["positive", "negative"], "positive", true, "negative"]);
  assert.equal(classes.choose(3), false);
  for (const number of [3, 4, 5, 6, 7, 8, 9]) {
    assert.ok(classes.add(`class ${number}`));
  }
  assert.equal(classes.add("one more"), false);
  assert.equal(new CountClasses(store).names.length, 9);
  kept.set("gemslide/count-classes", '[1, {}]');
  assert.deepEqual(new CountClasses(store).names, ["positive", "negative"]);
});
