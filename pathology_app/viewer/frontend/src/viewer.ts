// Interface of the viewer for its parts.
import type OpenSeadragon from "openseadragon";
import type { ToolChoice } from "./annotations/annotating";
import type { Annotations } from "./annotations/controller";
import type { Hand } from "./tools/hand";
import type { ImageAdjust } from "./image/adjust";
import type { LayerPanel } from "./layers/panel";
import type { Layers } from "./layers/collection";
import type { Navigation } from "./view/navigation";
import type { Picture } from "./marks/canvas";
import type { Beside } from "./cases/beside";
import type { PageWait } from "./cases/page_wait";
import type { Coverage } from "./review/coverage";
import type { HotspotList } from "./review/hotspot_list";
import type { Focus } from "./controls/focused";
import type { SidePanel } from "./panel/side";
import type { Sight } from "./tools/sight";
import type { MeasuringTool } from "./tools/toolbar";
import type { ViewerData } from "./types";

export interface Viewer {
  readonly data: ViewerData;
  readonly osd: OpenSeadragon.Viewer;
  readonly stage: HTMLElement;
  readonly navigation: Navigation;
  readonly sight: Sight;
  readonly layers: Layers;
  readonly layerPanel: LayerPanel;
  readonly panel: SidePanel;
  readonly picture: Picture;
  readonly image: ImageAdjust;
  readonly hand: Hand;
  readonly hotspotList: HotspotList;
  readonly coverage: Coverage | null;
  readonly annotations: Annotations;
  /** null in a reading. */
  readonly beside: Beside | null;
  readonly page: PageWait;
  /** null if the slide has a single focal plane. */
  readonly focus: Focus | null;
  draw(): void;
  /** Show the hint of the active tool. */
  advise(text: string): void;
  /** Take a measuring tool, or put it away. */
  take(tool: MeasuringTool): void;
  toolChanged(tool: ToolChoice | null): void;
  showWhole(): void;
  magnify(magnification: number): void;
  nextField(right: number, down: number): void;
  nextHotspot(step: 1 | -1): void;
  turn(degrees: number): void;
  mirror(): void;
  setUpright(): void;
  adjustImage(): void;
  togglePanel(): void;
  fullScreen(): void;
  listKeys(): void;
}
