// What Python and the browser tell each other. Frames and units stand in the names:
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
  /** With the places {level}, {col} and {row}. */
  tile_url: string;
  /** Finest first, as the server counts them. */
  levels: Level[];
  damaged: DamagedInfo | null;
  /** The scanner's profile as a table (tiles/colour_body.py); null where the slide has none. */
  colour_url: string | null;
}

/** Where the slide's file is damaged: white at level 0, and never predicted. */
export interface DamagedInfo {
  /** PNG, one pixel per cell, opaque where it is damaged. */
  url: string;
  cell_px0: number;
}

/** Values 0 to 1 over the slide: a class's probability, a quality score, a mask. */
export interface LayerInfo {
  /** "model/class", "tissue", "quality/focus": as the link names it. */
  id: string;
  /** Under which heading it stands. */
  group: string;
  label: string;
  /** 8-bit grey PNG, one pixel per cell: 0 is "not known", 1 + 254 times the value otherwise. */
  url: string;
  cell_px0: number;
  /** Either 0 or 1 everywhere. */
  is_mask: boolean;
  /** Of the model and class chosen on the page. */
  is_first: boolean;
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
  /** A small picture of it. */
  crop_url: string;
}

export interface Goto {
  /** Counts up: the view moves when it changes. */
  id: number;
  hotspot: number;
}

export interface Probe {
  x_px0: number;
  y_px0: number;
  text: string;
  /** Place, and what every class's probability is there. */
  rows: [string, string][];
}

/** What can be taken away from the slide's page. */
export interface Exports {
  may_export: boolean;
  files: { label: string; url: string }[];
  /** That opens the slide in napari. */
  command: string;
}

export interface ViewerData {
  slide: Slide;
  /** The whole slide in small, without its label; not in a reading. */
  thumbnail_url?: string;
  /** null in a reading: it takes nothing away. */
  exports: Exports | null;
  layers: LayerInfo[];
  hotspots: Hotspot[];
  /** What is to be said of the list; null where nothing may be said of hotspots. */
  hotspots_note: string | null;
  /** Where it is kept what is thought of them; null where it is not. */
  hotspots_url: string | null;
  /** Where it is kept what was looked at; null where it is not. */
  coverage_url: string | null;
  /** Of the page's link, where it is another than `slide` that names the slide. */
  link_parameter?: string;
  goto: Goto | null;
  probe: Probe | null;
  /** What is known of the slide, and of what is not shown. */
  facts: [string, string][];
  notes: string[];
}

/** One of several slides shown side by side. */
export interface ComparePaneData {
  title: string;
  slide: Slide;
  layers: LayerInfo[];
  notes: string[];
}

export interface CompareData {
  /** What the link's `compare` says. */
  name: string;
  panes: ComparePaneData[];
}

/** The argument Streamlit hands to a components-v2 module. */
export interface Streamlit<Data> {
  data: Data;
  parentElement: HTMLElement | ShadowRoot;
  setTriggerValue(name: string, value: unknown): void;
}

export type StreamlitComponent = Streamlit<ViewerData>;
