// Annotation data exchanged with the server (pathology_app/annotating/). Points are level-0 pixels.

export type Position = [number, number];

export type Geometry =
  | { type: "Point"; coordinates: Position }
  | { type: "MultiPoint"; coordinates: Position[] }
  | { type: "LineString"; coordinates: Position[] }
  | { type: "MultiLineString"; coordinates: Position[][] }
  | { type: "Polygon"; coordinates: Position[][] }
  | { type: "MultiPolygon"; coordinates: Position[][][] };

export type Kind = "point" | "line" | "rectangle" | "ellipse" | "polygon" | "freehand";

/** Content of an annotation, as entered by a user. */
export interface Content {
  kind: Kind;
  object_type: string;
  geometry: Geometry;
  class: string | null;
  note: string;
  deleted: boolean;
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
  may_export: boolean;
}

/** Number of annotations on the slide. */
export function totalOf({ classes, without_class }: Summary): number {
  return classes.reduce((sum, [, count]) => sum + count, without_class);
}

export interface Changes extends Summary {
  /** null if there are too many to list, or if they were not requested. */
  annotations: Annotation[] | null;
}

export interface Saved {
  change: number;
  saved: Annotation[];
  conflicts: Annotation[];
  me: string;
}

export function contentOf({ kind, object_type, geometry, class: name, note, deleted }: Content): Content {
  return { kind, object_type, geometry, class: name, note, deleted };
}
