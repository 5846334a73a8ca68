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
}

/** Where the slide's file is damaged: white at level 0, and never predicted. */
export interface DamagedInfo {
  /** PNG, one pixel per cell, opaque where it is damaged. */
  url: string;
  cell_px0: number;
}

export interface OverlayInfo {
  /** 8-bit grey PNG, one pixel per cell: 0 is "not predicted", 1 + 254 p otherwise. */
  url: string;
  label: string;
  stride_px0: number;
}

export interface Hotspot {
  x_px0: number;
  y_px0: number;
  radius_px0: number;
  /** Side of the square to show when the view moves here. */
  side_px0: number;
  score: number;
  label: string;
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
}

export interface ViewerData {
  slide: Slide;
  overlay: OverlayInfo | null;
  hotspots: Hotspot[];
  goto: Goto | null;
  probe: Probe | null;
}

/** The argument Streamlit hands to a components-v2 module. */
export interface Streamlit<Data> {
  data: Data;
  parentElement: HTMLElement | ShadowRoot;
  setTriggerValue(name: string, value: unknown): void;
}

export type StreamlitComponent = Streamlit<ViewerData>;
