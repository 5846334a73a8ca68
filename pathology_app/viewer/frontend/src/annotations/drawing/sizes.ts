// Sizes of drawings as text: lengths in µm or mm, areas in mm², with separators.
import { areaOf, lengthOf } from "../../view/geometry";
import { areaText, lengthText } from "../../view/scale_bar";
import { isArea, pathsOf } from "./shapes";
import type { Content, Geometry, RegionAreas } from "../types";

export interface Sizes {
  /** Of a line, or of an area's outline and holes. */
  length_um: number;
  area_um2: number;
}

export function sizesOf(geometry: Geometry, mpp0: number): Sizes {
  const outlines = new Set<number>();
  let [length, area] = [0, 0];
  for (const { points, part, isRing, isPoints } of pathsOf(geometry)) {
    length += isPoints ? 0 : lengthOf(isRing ? [...points, points[0]!] : points);
    area += isRing ? (outlines.has(part) ? -1 : 1) * areaOf(points) : 0;
    outlines.add(part);
  }
  return { length_um: length * mpp0, area_um2: area * mpp0 ** 2 };
}

/** "123 µm", "0.532 mm² · perimeter 3.1 mm", "one point". */
export function sizeText(geometry: Geometry, mpp0: number): string {
  if (geometry.type.endsWith("Point")) {
    const points = pathsOf(geometry)[0]!.points.length;
    return points > 1 ? `${points.toLocaleString("en")} points` : "one point";
  }
  const { length_um, area_um2 } = sizesOf(geometry, mpp0);
  return isArea(geometry) ? `${areaText(area_um2)} · perimeter ${lengthText(length_um)}` : lengthText(length_um);
}

/** Label that a drawing carries on the slide; "" for none. */
export function labelOf(content: Content, mpp0: number): string {
  const size = content.kind === "ruler" || content.kind === "area" ? sizeText(content.geometry, mpp0) : "";
  return [size, content.note.split("\n")[0]!.slice(0, 60)].filter(Boolean).join(" · ");
}

/** An area in mm²: three digits, and separators above a thousand. */
export function mm2Text(area_mm2: number): string {
  return `${area_mm2.toLocaleString("en", { maximumSignificantDigits: 3 })} mm²`;
}

/** "1 mm²", or "1 mm², of which 0.057 mm² (5.7 %) were scanned, with 0.04 mm² of tissue". */
export function areasText({ area_mm2, scanned_mm2, tissue_mm2 }: RegionAreas): string {
  const share = area_mm2 > 0 ? scanned_mm2 / area_mm2 : 0;
  const tissue = tissue_mm2 === null ? "" : `, tissue ${mm2Text(tissue_mm2)}`;
  const isAll = share > 0.999;
  return `${mm2Text(area_mm2)}, ${isAll ? "all scanned" : `scanned ${mm2Text(scanned_mm2)} (${percent(share)})`}${tissue}`;
}

export function percent(share: number): string {
  return `${(100 * share).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} %`;
}

/** A density in objects per mm². */
export function perMm2Text(density: number | null): string {
  return density === null ? "–" : density.toLocaleString("en", { maximumSignificantDigits: 3 });
}
