// Annotation data exchanged with the server (pathology_app/annotating/). Points are level-0 pixels.

export type Position = [number, number];

export type Geometry =
  | { type: "Point"; coordinates: Position }
  | { type: "MultiPoint"; coordinates: Position[] }
  | { type: "LineString"; coordinates: Position[] }
  | { type: "MultiLineString"; coordinates: Position[][] }
  | { type: "Polygon"; coordinates: Position[][] }
  | { type: "MultiPolygon"; coordinates: Position[][][] };

/** Kinds of annotation (pipeline/review/annotations/kinds.py). */
export type Kind =
  | "point" | "line" | "rectangle" | "ellipse" | "polygon" | "freehand"
  | "ruler" | "area" | "arrow" | "text" | "count" | "mark" | "reply" | "bookmark";

/** Kinds that are not in the tiles: drawn one by one with labels, or listed. */
const APART: readonly Kind[] = ["ruler", "area", "arrow", "text", "count", "bookmark"];

export function isDrawnApart(kind: Kind): boolean {
  return APART.includes(kind);
}

/** Content of an annotation, as entered by a user. */
export interface Content {
  kind: Kind;
  object_type: string;
  geometry: Geometry;
  class: string | null;
  note: string;
  deleted: boolean;
  /** Count of a mark, or the annotation that a reply answers. */
  parent: string | null;
  /** A bookmark's view, as parameters of a link. */
  view: string | null;
}

/** A change to save; `revision` is the revision it is based on, 0 for a new annotation. */
export interface Draft extends Content {
  id: string;
  revision: number;
}

/** An annotation as stored on the server. */
export interface Annotation extends Draft {
  change: number;
  author: string;
  made_utc: string;
  changed_by: string;
  changed_utc: string;
}

export interface Summary {
  change: number;
  /** All classes of the project in order of first use: name, number of annotations on this slide, "RRGGBB". */
  classes: [string, number, string][];
  without_class: number;
  palette: string[];
  /** Distinguishes projects that one browser opens at the same address. */
  project: string;
  /** The signed-in user, as named in the log. */
  me: string;
  may_annotate: boolean;
  /** Whether people may change only their own annotations of this slide. */
  only_own: boolean;
  may_export: boolean;
}

/** Number of annotations on the slide. */
export function totalOf({ classes, without_class }: Summary): number {
  return classes.reduce((sum, [, count]) => sum + count, without_class);
}

export interface Changes extends Summary {
  /** null if there are too many to list; in the first answer, those that are not in the tiles. */
  annotations: Annotation[] | null;
}

export interface Saved {
  change: number;
  saved: Annotation[];
  conflicts: Annotation[];
  me: string;
}

/** Areas of a region, in mm² (pipeline/review/counting/areas.py). */
export interface RegionAreas {
  area_mm2: number;
  scanned_mm2: number;
  /** null: the slide has no tissue mask. */
  tissue_mm2: number | null;
}

export interface ClassTally {
  class_name: string;
  number: number;
  share: number;
  share_low: number;
  share_high: number;
  per_mm2: number | null;
  per_mm2_tissue: number | null;
}

/** One count, or all together (`id` is null). */
export interface CountTally extends RegionAreas {
  id: string | null;
  name: string;
  classes: ClassTally[];
  /** Marks outside its area, which are not counted. */
  outside: number;
  author: string;
  changed_utc: string;
}

export interface Counts {
  /** The slide's counter that these numbers are of. */
  change: number;
  counts: CountTally[];
}

export function contentOf({ kind, object_type, geometry, class: name, note, deleted, parent, view }: Content): Content {
  return { kind, object_type, geometry, class: name, note, deleted, parent, view };
}

/** A new drawing without class, note and parent. */
export function drawing(kind: Kind, geometry: Geometry, more: Partial<Content> = {}): Content {
  return { kind, object_type: "annotation", geometry, class: null, note: "", deleted: false, parent: null, view: null, ...more };
}
