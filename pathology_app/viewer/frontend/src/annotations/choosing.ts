// Which annotation a click means: the smallest there; a second click on the same place, the next larger one.
import type { Point } from "../geometry";
import { type Api, Refused } from "./api";
import type { Model } from "./model";
import { boundsOfGeometry } from "./shapes";
import type { Annotation, Geometry } from "./types";
import { shortId } from "./vector_tile";

/** @param last the one chosen last. Without an answer of the server, those known here are all there are. */
export async function idAt(at: Point, near_px0: number, api: Api, model: Model, last: string | null): Promise<string | null> {
  const theirs = (await asked(at, near_px0, api)).filter(({ id }) => !model.isApart(shortId(id))); // what is here is newer
  const ours = model.under(at.x, at.y, near_px0).map((id) => ({ id, geometry: model.content(id)!.geometry }));
  const ids = [...theirs, ...ours].sort((one, other) => extent(one.geometry) - extent(other.geometry)).map(({ id }) => id);
  const id = ids.length ? ids[(ids.indexOf(last ?? "") + 1) % ids.length]! : null;
  model.learn(theirs.filter((each) => each.id === id), true);
  return id;
}

async function asked(at: Point, near_px0: number, api: Api): Promise<Annotation[]> {
  try {
    return await api.at(at.x, at.y, near_px0);
  } catch (error) {
    if (error instanceof Refused && error.status === 0) {
      return []; // what is known here can still be chosen
    }
    throw error;
  }
}

function extent(geometry: Geometry): number {
  const [left, top, right, bottom] = boundsOfGeometry(geometry);
  return (right - left) * (bottom - top);
}
