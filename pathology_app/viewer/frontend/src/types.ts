// Data exchanged between Python and the browser. Names carry the frame and unit:
// _px0 is level-0 pixels, _px is pixels of the level itself, _um is micrometres on the glass.

export interface Level {
  width_px: number;
  height_px: number;
  tile_px: number;
  downsample: number;
}

export interface Slide {
  slide_id: string;
  mpp0: number;
  /** With the placeholders {level}, {col} and {row}. */
  tile_url: string;
  /** Finest first, as the server counts them. */
  levels: Level[];
  damaged: DamagedInfo | null;
  /** null if the slide has a single focal plane. */
  planes: PlanesInfo | null;
  /** URL of the scanner's profile as a table (tiles/colour_body.py); null if the slide has none. */
  colour_url: string | null;
}

/** Focal planes of a stack, lowest first. */
export interface PlanesInfo {
  heights_um: number[];
  /** Number of the plane at `Slide.tile_url`, the default one. */
  first: number;
  /** As `Slide.tile_url`, with the placeholder {plane}. */
  tile_url: string;
}

/** Damaged areas of the slide's file: white at level 0, and never predicted. */
export interface DamagedInfo {
  /** PNG, one pixel per cell, opaque where the slide is damaged. */
  url: string;
  cell_px0: number;
}

/** Values 0 to 1 over the slide: a class's probability, a quality score, a mask; or attention, as a share of its range. */
export interface LayerInfo {
  /** Identifier used in the link: "model/class", "attention/model", "tissue", "quality/focus". */
  id: string;
  /** One of Python's kinds of overlays (slides/overlays.py). */
  kind: string;
  /** Heading in the panel. */
  group: string;
  label: string;
  /** 8-bit grey PNG, one pixel per cell: 0 is "not known", 1 + 254 times the value otherwise. */
  url: string;
  cell_px0: number;
  /** Whether every value is 0 or 1. */
  is_mask: boolean;
  /** Whether this is the layer of the model and class selected on the page. */
  is_first: boolean;
  /** Value that 1 in the image stands for. */
  limit: number;
  /** Unit of the values, as in "2.4 × average"; "" for shares. */
  unit: string;
  /** What the values do not mean, shown below the legend; "" if nothing needs to be said. */
  note: string;
  /** Style until the user changes it. */
  style: StartingStyle;
}

/** Initial style of a layer; the threshold is the one that the model's results were made with. */
export interface StartingStyle {
  visible: boolean;
  opacity: number;
  threshold: number;
  palette: string;
  outline: boolean;
}

export interface Hotspot {
  x_px0: number;
  y_px0: number;
  radius_px0: number;
  /** Side of the square to show when the view moves here. */
  side_px0: number;
  score: number;
  label: string;
  class_name: string;
  area_mm2: number;
  /** "x 0.24, y 0.43 mm" */
  place: string;
  /** URL of a thumbnail. */
  crop_url: string;
}

export interface Goto {
  /** Counter: the view moves when it changes. */
  id: number;
  hotspot: number;
}

export interface Probe {
  x_px0: number;
  y_px0: number;
  text: string;
  /** Position, and the probability of every class there. */
  rows: [string, string][];
}

/** What a slide-level model says of the slide or its patient. */
export interface Answer {
  model: string;
  /** "Patient P-1, 2 slides, 87 tiles"; or why nothing is known. */
  about: string;
  /** Each target with its values. */
  rows: [string, string][];
}

/** Exports offered on the slide's page. */
export interface Exports {
  may_export: boolean;
  files: { label: string; url: string }[];
  /** Command that opens the slide in napari. */
  command: string;
}

export interface ViewerData {
  slide: Slide;
  /** Thumbnail of the whole slide, without its label; absent in a reading. */
  thumbnail_url?: string;
  /** null in a reading, which offers no exports. */
  exports: Exports | null;
  layers: LayerInfo[];
  /** Absent in a reading, and until the page follows. */
  answers?: Answer[];
  hotspots: Hotspot[];
  /** Note on the list; null if hotspots may not be shown. */
  hotspots_note: string | null;
  /** URL that stores judgements of hotspots; null if they are not stored. */
  hotspots_url: string | null;
  /** URL that stores the areas viewed; null if they are not stored. */
  coverage_url: string | null;
  /** URL of the slides of its case, or of its list; absent in a reading. */
  tray_url?: string;
  /** Whether this is only what shows the slide; the rest follows. */
  is_partial?: boolean;
  /** Link parameter that names the slide, if not `slide`. */
  link_parameter?: string;
  goto: Goto | null;
  probe: Probe | null;
  /** Facts about the slide, and about anything not shown. */
  facts: [string, string][];
  notes: string[];
}

/** One of several slides shown side by side. */
export interface ComparePaneData {
  title: string;
  slide: Slide;
  /** Models whose predictions may be shown over it, and the one shown; "" for none. */
  models: string[];
  model: string;
  /** Whether the person still has to read it without help: nothing that others have drawn is shown. */
  is_blinded: boolean;
  layers: LayerInfo[];
  notes: string[];
}

export interface CompareData {
  /** Value of the link's `compare` parameter. */
  name: string;
  /** Whether the person may save registrations. */
  may_register?: boolean;
  /** Whether there is room for another view. */
  may_add: boolean;
  panes: ComparePaneData[];
}

/** Argument that Streamlit passes to a components-v2 module. */
export interface Streamlit<Data> {
  data: Data;
  parentElement: HTMLElement | ShadowRoot;
  setTriggerValue(name: string, value: unknown): void;
}

export type StreamlitComponent = Streamlit<ViewerData>;
