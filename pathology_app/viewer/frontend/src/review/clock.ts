// Time that a reading without a slide on the screen (at the microscope) is open in a visible tab.
import type { Streamlit } from "../types";
import { Outbox } from "./outbox";
import { onSigning } from "./signing";

const TICK_MS = 1_000;
const SEND_MS = 10_000;

class Clock {
  private readonly outbox: Outbox;
  private readonly stop = new AbortController();
  private seconds = 0;
  private last = performance.now();
  private isSigning = false;
  private sent = performance.now();
  private readonly timer = window.setInterval(() => this.tick(), TICK_MS);

  constructor(
    readonly url: string,
    readonly element: Streamlit<unknown>["parentElement"],
  ) {
    this.outbox = new Outbox(url, () => undefined);
    const { signal } = this.stop;
    onSigning((isOn) => this.signing(isOn), signal);
    document.addEventListener("visibilitychange", () => this.visibilityChanged(), { signal });
    window.addEventListener("pagehide", () => this.sendLast(), { signal });
    document.addEventListener("pointerdown", () => void this.send(), { signal, capture: true });
  }

  end(): void {
    this.tick();
    this.sendLast();
    window.clearInterval(this.timer);
    this.stop.abort();
  }

  private tick(): void {
    const now = performance.now();
    if (!this.element.isConnected) {
      window.clearInterval(this.timer);
      this.sendLast();
      this.stop.abort();
      return;
    }
    if (document.visibilityState === "visible" && !this.isSigning) {
      this.seconds += Math.min(2, (now - this.last) / 1000);
    }
    this.last = now;
    if (now - this.sent > SEND_MS) {
      void this.send();
    }
  }

  private signing(isOn: boolean): void {
    this.tick();
    this.isSigning = isOn;
    void this.send();
  }

  private visibilityChanged(): void {
    this.last = performance.now();
    if (document.visibilityState === "hidden") {
      this.sendLast();
    }
  }

  private async send(): Promise<void> {
    const { seconds } = this;
    if (seconds > 0) {
      this.sent = performance.now();
      this.seconds = 0;
      this.seconds += (await this.outbox.send(bodyOf(seconds))) ? 0 : seconds;
    }
  }

  private sendLast(): void {
    if (this.seconds > 0 && this.outbox.sendLast(bodyOf(this.seconds))) {
      this.seconds = 0;
    }
  }
}

function bodyOf(seconds: number): object {
  return { looks: [], seconds: Math.round(seconds * 100) / 100 };
}

let clock: Clock | null = null;

export function readingClock({ data, parentElement }: Streamlit<{ url: string }>): void {
  if (clock?.url !== data.url || clock.element !== parentElement) {
    clock?.end();
    clock = new Clock(data.url, parentElement);
  }
}
