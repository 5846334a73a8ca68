// Classes that models tell apart, as suggestions for annotations.
import type { LayerInfo } from "../types";

/** Class names of models, from layers "model/class". */
export function classesOf(layers: LayerInfo[]): string[] {
  const names = layers.filter(({ kind }) => kind === "prediction").map(({ id }) => id.split("/")[1]!);
  return [...new Set(names.map(decodeURIComponent))];
}
