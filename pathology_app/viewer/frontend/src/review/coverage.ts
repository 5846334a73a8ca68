// Areas seen: recorded while the view rests in a visible tab, shown as a veil over the areas not yet seen, and stored.
import OpenSeadragon from "openseadragon";
import { box, checkbox, menu } from "../panel/elements";
import { type Point, Transform } from "../view/geometry";
import { cssPxPerScreenPx } from "../tools/sight";
import type { Slide } from "../types";
import { codeOf, CoverageMap, hasRested, isFineEnough, isInField, type Look, lookBody, Looks, Rest, type SeenRule } from "./coverage_map";
import { messageOf, Outbox } from "./outbox";
import { onSigning } from "./signing";
import { umPerPxAt } from "../view/scale_bar";

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
  /** `is_of_study`: a protocol states it, so that nothing else may be chosen. */
  rule: SeenRule & { is_of_study: boolean };
}

export interface CoverageHost {
  /** Whether a part of the slide is on the screen: no time counts before. */
  isDrawn(): boolean;
  /** Current view with zero seconds; null while it moves. */
  view(): Look | null;
  redraw(): void;
  note(text: string): void;
  /** The view has rested long enough at a sufficient magnification: what lies in its field has been seen. */
  saw(isInField: (at: Point) => boolean): void;
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
  private readonly text = box("share");
  private readonly ruleText = box("hint");
  private readonly choice = box("row");
  private readonly looks = new Looks();
  private readonly rest = new Rest();
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
    const show = checkbox("Veil on the slide (u)", "Veil areas not yet seen on the slide", false, (isOn) => this.showOnSlide(isOn));
    this.showBox = show.querySelector("input")!;
    this.element.append(this.text, this.choice, show, this.ruleText);
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
      this.drawField(context, ratio, this.map.rule);
    }
  }

  private async load(): Promise<void> {
    const response = await fetch(this.info.url).catch(() => null);
    if (!response?.ok) {
      this.host.note(response ? await messageOf(response) : "The areas viewed before could not be loaded.");
      return;
    }
    const stored = (await response.json()) as Stored;
    const { cell_px0, columns, rows, rule } = stored;
    const tissue = stored.tissue === null ? null : bytesOf(stored.tissue);
    this.map = new CoverageMap({ cell_px0, columns, rows }, rule, bytesOf(stored.finest), tissue);
    this.isKept = stored.is_kept;
    [this.veil.width, this.veil.height] = [columns, rows];
    this.magnification = rule.magnification;
    this.choice.replaceChildren(...(rule.is_of_study ? [] : ["Seen at ", this.chooser(), "× or more"]));
    this.changed();
  }

  /** Menu of the magnification that the veil is drawn for. */
  private chooser(): HTMLSelectElement {
    return menu("Magnification that counts as seen", MAGNIFICATIONS, String(this.magnification), (value) => {
      this.magnification = Number(value);
      this.changed();
    });
  }

  private tick(): void {
    const now = performance.now();
    const seconds = Math.min(MAX_TICK_S, (now - this.last) / 1000);
    this.last = now;
    if (document.visibilityState !== "visible" || !this.map || this.isSigning || !this.host.isDrawn()) {
      return;
    }
    this.openSeconds += seconds;
    const look = this.rest.tick(this.host.view(), seconds);
    if (look) {
      this.looks.add(look);
      this.count(look, this.map);
    }
    if (now - this.sent > SEND_MS) {
      void this.flush();
    }
  }

  /** Count what a look shows as seen, if the rule says so. */
  private count(look: Look, map: CoverageMap): void {
    if (map.add(look, this.slide.mpp0)) {
      this.changed();
    }
    const { rule } = map;
    if (hasRested(look, rule) && isFineEnough(look, rule, this.slide.mpp0)) {
      this.host.saw((at) => isInField(at, look, rule, this.slide.mpp0));
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
    this.rest.tick(null, 0);
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
        : `${Math.floor(share * 100)} % of ${region} has been seen at ${this.magnification}× or more.`;
    this.ruleText.textContent = ruleText(map.rule, this.magnification, this.slide.mpp0);
    const image = new ImageData(map.grid.columns, map.grid.rows);
    for (let cell = 0; cell < map.finest.length; cell++) {
      if (map.isUnseen(cell, this.magnification)) {
        image.data.set([...VEIL, 255], 4 * cell);
      }
    }
    this.veil.getContext("2d")!.putImageData(image, 0, 0);
    this.host.redraw();
  }

  /** Draw the edge of the field in which areas count. */
  private drawField(context: CanvasRenderingContext2D, ratio: number, { field_px }: SeenRule): void {
    const { width, height } = context.canvas;
    const radius = (field_px / 2) * cssPxPerScreenPx() * ratio;
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.beginPath();
    context.arc(width / 2, height / 2, radius, 0, 2 * Math.PI);
    for (const [colour, thickness, dash] of [["#ffffff", 3, 0], ["#1f2430", 1.5, 6]] as const) {
      [context.strokeStyle, context.lineWidth] = [colour, thickness * ratio];
      context.setLineDash(dash ? [dash * ratio, dash * ratio] : []);
      context.stroke();
    }
    context.restore();
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

/** The rule in words, and why nothing may count. */
function ruleText({ seconds, field_px }: SeenRule, magnification: number, mpp0: number): string {
  const zoom = Math.round(100 / cssPxPerScreenPx());
  const scanned = umPerPxAt(1) / mpp0;
  return [
    `Seen: within ${field_px / 2} pixels of the middle of the view (dashed circle, with the veil), at ${magnification}× or more, ` +
      `for at least ${seconds} s without moving.`,
    codeOf(mpp0) < codeOf(umPerPxAt(magnification)) ? `The slide was scanned at about ${Number(scanned.toPrecision(2))}×: none of it counts at ${magnification}×.` : "",
    zoom < 100 ? `This browser is zoomed out to ${zoom} %: the magnification that counts is ${zoom} % of the one shown.` : "",
  ].filter((text) => text).join(" ");
}

function bodyOf(looks: Look[], seconds: number): object {
  return { looks: looks.map(lookBody), seconds: Math.round(seconds * 100) / 100 };
}

function bytesOf(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
