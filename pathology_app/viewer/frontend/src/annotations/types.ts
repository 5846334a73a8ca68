// What the server and the browser tell each other of annotations (pathology_app/annotating/). Points are level-0 pixels.

export type Position = [number, number];

export type Geometry =
  | { type: "Point"; coordinates: Position }
  | { type: "MultiPoint"; coordinates: Position[] }
  | { type: "LineString"; coordinates: Position[] }
  | { type: "MultiLineString"; coordinates: Position[][] }
  | { type: "Polygon"; coordinates: Position[][] }
  | { type: "MultiPolygon"; coordinates: Position[][][] };

export type Kind = "point" | "line" | "rectangle" | "ellipse" | "polygon" | "freehand";

/** What a person drew and said. */
export interface Content {
  kind: Kind;
  object_type: string;
  geometry: Geometry;
  class: string | null;
  note: string;
  deleted: boolean;
}

/** What is to be saved; `revision` is the one it was made from, 0 of what is new. */
export interface Draft extends Content {
  id: string;
  revision: number;
}

/** As the server has it. */
export interface Annotation extends Draft {
  change: number;
  author: string;
  made_utc: string;
  changed_by: string;
  changed_utc: string;
}

export interface Summary {
  change: number;
  /** Every class of the project in the order of its first use: name, how many of it on this slide, "RRGGBB". */
  classes: [string, number, string][];
  without_class: number;
  palette: string[];
  /** Tells projects apart that one browser sees at the same address. */
  project: string;
  /** Who is signed in, as the log names them. */
  me: string;
  may_annotate: boolean;
  may_export: boolean;
}

/** How many the slide has. */
export function totalOf({ classes, without_class }: Summary): number {
  return classes.reduce((sum, [, count]) => sum + count, without_class);
}

export interface Changes extends Summary {
  /** Null where they are too many to be listed, or were not asked for. */
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
