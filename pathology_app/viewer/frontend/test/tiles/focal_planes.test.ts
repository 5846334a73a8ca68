import assert from "node:assert/strict";
import test from "node:test";
import { heightText, planeOf } from "../../src/controls/focus";
import { atPlane, imageShown, wantedPlanes } from "../../src/tiles/focal_planes";
import type { Slide } from "../../src/types";

const planes = { heights_um: [-1.5, 0, 2], first: 1, tile_url: "/tiles/S/z{plane}/{level}/{col}_{row}?v=1" };
const slide = { slide_id: "S", tile_url: "/tiles/S/{level}/{col}_{row}?v=1", planes } as Slide;

test("a plane's tiles have URLs of their own, those of the first plane the slide's", () => {
  assert.equal(atPlane(slide, 1), slide);
  assert.equal(atPlane(slide, 2).tile_url, "/tiles/S/z2/{level}/{col}_{row}?v=1");
  const single = { ...slide, planes: null };
  assert.equal(atPlane(single, 0), single);
});

test("the plane shown is loaded first, then its neighbours, and none that does not exist", () => {
  assert.deepEqual(wantedPlanes(1, 3), [1, 2, 0]);
  assert.deepEqual(wantedPlanes(0, 3), [0, 1]);
  assert.deepEqual(wantedPlanes(2, 3), [2, 1]);
});

test("a link names a plane by its height; any other text names none", () => {
  assert.equal(planeOf("-1.5", planes), 0);
  assert.equal(planeOf("2", planes), 2);
  for (const text of [null, "", " ", "1", "NaN", "2,0", "x", "1e999"]) {
    assert.equal(planeOf(text, planes), null, String(text));
  }
});

test("heights are shown with their sign", () => {
  assert.deepEqual([-1.5, 0, 2].map(heightText), ["−1.5 µm", "0 µm", "+2 µm"]);
});

test("of several images the one on the screen counts", () => {
  const image = (opacity: number): object => ({ getOpacity: () => opacity });
  const of = (...items: object[]): object => ({ world: { getItemCount: () => items.length, getItemAt: (index: number) => items[index] } });
  const [hidden, shown] = [image(0), image(1)];
  assert.equal(imageShown(of(hidden, shown, image(0)) as never), shown);
  assert.equal(imageShown(of(shown) as never), shown);
  assert.equal(imageShown(of(hidden) as never), hidden);
});
