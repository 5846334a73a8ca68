// Areas viewed: recorded while the view rests in a visible tab, shown as a veil over the areas not yet viewed, and stored.
import OpenSeadragon from "openseadragon";
import { box, checkbox, menu } from "../panel/elements";
import { type Point, Transform } from "../view/geometry";
import type { Slide } from "../types";
import { CoverageMap, type Look, lookBody, Looks } from "./coverage_map";
import { messageOf, Outbox } from "./outbox";
import { onSigning } from "./signing";

export interface CoverageInfo {
  /** GET returns the areas viewed before (`Stored`); POST takes viewings. */
  url: string;
}

interface Stored {
  cell_px0: number;
  columns: number;
  rows: number;
  /** Base64 of one byte per cell. */
  finest: string;
  tissue: string | null;
  /** Whether the server stores viewings. */
  is_kept: boolean;
}

export interface CoverageHost {
  /** Whether a part of the slide is on the screen: no time counts before. */
  isDrawn(): boolean;
  /** Current view with zero seconds; null while it moves. */
  view(): Look | null;
  redraw(): void;
  note(text: string): void;
  /** The view has rested. */
  rested(look: Look): void;
}

const TICK_MS = 250;
/** Interval between two messages; each becomes a log entry. */
const SEND_MS = 10_000;
const MAX_LOOKS = 200;
/** A longer gap between two ticks means that the computer slept. */
const MAX_TICK_S = 1;
const MAGNIFICATIONS = ["2.5", "5", "10", "20", "40"];
const VEIL = [70, 76, 90] as const;

export class Coverage {
  readonly element = box("coverage");
  map: CoverageMap | null = null;
  private readonly text = box("hint");
  private readonly looks = new Looks();
  private readonly veil = document.createElement("canvas");
  private readonly overNavigator = document.createElement("canvas");
  private readonly outbox: Outbox;
  private readonly stop = new AbortController();
  private magnification = 10;
  private isOnSlide = false;
  private isKept = true;
  private isSigning = false;
  private openSeconds = 0;
  private last = performance.now();
  private sent = performance.now();
  private readonly timer: number;
  private readonly showBox: HTMLInputElement;

  constructor(
    private readonly info: CoverageInfo,
    private readonly slide: Slide,
    private readonly host: CoverageHost,
    private readonly navigator: OpenSeadragon.Viewer | undefined,
  ) {
    this.outbox = new Outbox(info.url, (problem) => problem && host.note(problem));
    const show = checkbox("Veil on the slide (u)", "Veil areas not yet viewed on the slide", false, (isOn) => this.showOnSlide(isOn));
    this.showBox = show.querySelector("input")!;
    const at = menu("Magnification that counts as viewed", MAGNIFICATIONS, "10", (value) => {
      this.magnification = Number(value);
      this.changed();
    });
    this.element.append(this.text, box("row", "Viewed at ", at, "× or more"), show);
    this.overNavigator.className = "veil";
    this.navigator?.element.append(this.overNavigator);
    const { signal } = this.stop;
    onSigning((isOn) => this.signing(isOn), signal);
    document.addEventListener("visibilitychange", () => this.visibilityChanged(), { signal });
    window.addEventListener("pagehide", () => this.leave(), { signal });
    // Send the viewings before a click signs a reading or leaves the page.
    document.addEventListener("pointerdown", () => this.flushSoon(), { signal, capture: true });
    document.addEventListener("keydown", (event) => event.key === "Enter" && this.flushSoon(), { signal, capture: true });
    this.timer = window.setInterval(() => this.tick(), TICK_MS);
    void this.load();
  }

  destroy(): void {
    this.leave();
    window.clearInterval(this.timer);
    this.stop.abort();
    this.overNavigator.remove();
  }

  toggle(): void {
    this.showBox.checked = !this.isOnSlide;
    this.showOnSlide(!this.isOnSlide);
  }

  /** Draw the veil on the navigator and, if switched on, over the slide. */
  draw(context: CanvasRenderingContext2D, transform: Transform, ratio: number): void {
    this.drawNavigator();
    if (this.isOnSlide && this.map) {
      this.drawVeil(context, transform, ratio, 0.62);
    }
  }

  private async load(): Promise<void> {
    const response = await fetch(this.info.url).catch(() => null);
    if (!response?.ok) {
      this.host.note(response ? await messageOf(response) : "The areas viewed before could not be loaded.");
      return;
    }
    const stored = (await response.json()) as Stored;
    const { cell_px0, columns, rows } = stored;
    const tissue = stored.tissue === null ? null : bytesOf(stored.tissue);
    this.map = new CoverageMap({ cell_px0, columns, rows }, bytesOf(stored.finest), tissue);
    this.isKept = stored.is_kept;
    [this.veil.width, this.veil.height] = [columns, rows];
    this.changed();
  }

  private tick(): void {
    const now = performance.now();
    const seconds = Math.min(MAX_TICK_S, (now - this.last) / 1000);
    this.last = now;
    if (document.visibilityState !== "visible" || !this.map || this.isSigning || !this.host.isDrawn()) {
      return;
    }
    this.openSeconds += seconds;
    const view = this.host.view();
    if (view) {
      const look = { ...view, seconds };
      this.looks.add(look);
      if (this.map.add(look, this.slide.mpp0)) {
        this.changed();
      }
      this.host.rested(look);
    }
    if (now - this.sent > SEND_MS) {
      void this.flush();
    }
  }

  /** The time to take a signature back does not count; all viewings are sent before it. */
  private signing(isOn: boolean): void {
    this.tick();
    this.isSigning = isOn;
    void this.flush();
  }

  private visibilityChanged(): void {
    this.last = performance.now();
    if (document.visibilityState === "hidden") {
      this.leave();
    }
  }

  private flushSoon(): void {
    if (this.openSeconds >= 1) {
      void this.flush();
    }
  }

  private async flush(): Promise<void> {
    if (!this.isKept || (this.looks.isEmpty && this.openSeconds === 0)) {
      return;
    }
    this.sent = performance.now();
    const [looks, seconds] = [this.looks.take(MAX_LOOKS), this.openSeconds];
    this.openSeconds = 0;
    if (!(await this.outbox.send(bodyOf(looks, seconds)))) {
      this.looks.putBack(looks);
      this.openSeconds += seconds;
    }
  }

  private leave(): void {
    if (this.isKept && (!this.looks.isEmpty || this.openSeconds > 0)) {
      const [looks, seconds] = [this.looks.take(MAX_LOOKS), this.openSeconds];
      if (this.outbox.sendLast(bodyOf(looks, seconds))) {
        this.openSeconds = 0;
      } else {
        this.looks.putBack(looks);
      }
    }
  }

  private showOnSlide(isOn: boolean): void {
    this.isOnSlide = isOn;
    this.host.redraw();
  }

  private changed(): void {
    const { map } = this;
    if (!map) {
      return;
    }
    const share = map.shareSeen(this.magnification);
    const region = map.tissue ? "the tissue" : "the slide";
    this.text.textContent =
      share === null
        ? "No tissue was found on this slide."
        : `${Math.floor(share * 100)} % of ${region} was on the screen at ${this.magnification}× or more.`;
    const image = new ImageData(map.grid.columns, map.grid.rows);
    for (let cell = 0; cell < map.finest.length; cell++) {
      if (map.isUnseen(cell, this.magnification)) {
        image.data.set([...VEIL, 255], 4 * cell);
      }
    }
    this.veil.getContext("2d")!.putImageData(image, 0, 0);
    this.host.redraw();
  }

  private drawVeil(context: CanvasRenderingContext2D, transform: Transform, ratio: number, opacity: number): void {
    const { cell_px0, columns, rows } = this.map!.grid;
    context.save();
    transform.apply(context, ratio);
    context.beginPath();
    context.rect(0, 0, this.slide.levels[0]!.width_px, this.slide.levels[0]!.height_px); // the last cells extend beyond it
    context.clip();
    context.globalAlpha = opacity;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.veil, 0, 0, columns * cell_px0, rows * cell_px0);
    context.restore();
  }

  private drawNavigator(): void {
    const viewport = this.navigator?.viewport;
    if (!this.navigator || !viewport || !this.map) {
      return;
    }
    const { clientWidth: width, clientHeight: height } = this.navigator.element;
    if (this.overNavigator.width !== width || this.overNavigator.height !== height) {
      [this.overNavigator.width, this.overNavigator.height] = [width, height];
    }
    const context = this.overNavigator.getContext("2d")!;
    context.clearRect(0, 0, width, height);
    this.drawVeil(context, navigatorTransform(this.navigator), 1, 0.45);
  }
}

function navigatorTransform({ viewport, world }: OpenSeadragon.Viewer): Transform {
  const width_px0 = world.getItemAt(0)?.getContentSize().x ?? 1;
  const across = viewport.getContainerSize().x;
  const at = (x: number, y: number): Point => {
    const corner = viewport.pixelFromPoint(new OpenSeadragon.Point(x, y), true);
    return { x: viewport.getFlip() ? across - corner.x : corner.x, y: corner.y };
  };
  return Transform.through(at(0, 0), at(1, 0), at(0, 1), width_px0);
}

function bodyOf(looks: Look[], seconds: number): object {
  return { looks: looks.map(lookBody), seconds: Math.round(seconds * 100) / 100 };
}

function bytesOf(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
