// Selection by clicking: the smallest annotation at the point; another click there selects the next larger one.
import type { Point } from "../view/geometry";
import { type AnnotationApi, Refused } from "./storage/api";
import type { Model } from "./storage/model";
import { boundsOfGeometry } from "./drawing/shapes";
import type { Annotation, Geometry } from "./types";
import { shortId } from "./drawing/vector_tile";

/** @param last the annotation selected last. If the server does not answer, only annotations known here are considered. */
export async function idAt(at: Point, near_px0: number, api: AnnotationApi, model: Model, last: string | null): Promise<string | null> {
  const theirs = (await fetchAt(at, near_px0, api)).filter(({ id }) => !model.isApart(shortId(id))); // the local version is newer
  const ours = model.under(at.x, at.y, near_px0).map((id) => ({ id, geometry: model.content(id)!.geometry }));
  const ids = [...theirs, ...ours].sort((one, other) => extent(one.geometry) - extent(other.geometry)).map(({ id }) => id);
  const id = ids.length ? ids[(ids.indexOf(last ?? "") + 1) % ids.length]! : null;
  model.learn(theirs.filter((annotation) => annotation.id === id), true);
  return id;
}

async function fetchAt(at: Point, near_px0: number, api: AnnotationApi): Promise<Annotation[]> {
  try {
    return await api.at(at.x, at.y, near_px0);
  } catch (error) {
    if (error instanceof Refused && error.status === 0) {
      return []; // annotations known here can still be selected
    }
    throw error;
  }
}

function extent(geometry: Geometry): number {
  const [left, top, right, bottom] = boundsOfGeometry(geometry);
  return (right - left) * (bottom - top);
}
