// The seconds between the wish to sign and the signature, in which it can be taken back. A page that is left, hidden or
// asleep in that time signs nothing.
import { announceSigning } from "../review/signing";

export const TAKE_BACK_S = 3;
const TICK_MS = 100;
/** A longer gap between two ticks means that the computer or the tab slept. */
const MAX_GAP_MS = 1_500;

export interface CountdownHost {
  /** The time is over: sign. */
  over(): void;
  takenBack(): void;
}

export class Countdown {
  readonly element = document.createElement("div");
  private readonly text = document.createElement("span");
  private readonly button = document.createElement("button");
  private stop: AbortController | null = null;
  private timer = 0;
  private passed_ms = 0;
  private last = 0;

  constructor(private readonly host: CountdownHost) {
    this.element.className = "countdown";
    this.element.hidden = true;
    this.text.setAttribute("aria-hidden", "true");
    [this.button.type, this.button.textContent] = ["button", "Take back (Esc)"];
    this.button.addEventListener("click", () => this.takeBack());
    this.element.append(this.text, this.button);
  }

  get isRunning(): boolean {
    return this.stop !== null;
  }

  begin(): void {
    this.end();
    this.stop = new AbortController();
    const { signal } = this.stop;
    window.addEventListener("keydown", (event) => this.key(event), { signal, capture: true });
    window.addEventListener("pagehide", () => this.takeBack(), { signal });
    document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && this.takeBack(), { signal });
    [this.passed_ms, this.last] = [0, performance.now()];
    this.timer = window.setInterval(() => this.tick(), TICK_MS);
    this.element.hidden = false;
    this.show();
    this.button.focus();
    announceSigning(true);
  }

  /** End without signing, and without telling the host. */
  end(): void {
    window.clearInterval(this.timer);
    this.stop?.abort();
    this.stop = null;
    this.element.hidden = true;
  }

  private takeBack(): void {
    this.end();
    announceSigning(false);
    this.host.takenBack();
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      this.takeBack();
    }
  }

  private tick(): void {
    const now = performance.now();
    const gap_ms = now - this.last;
    [this.last, this.passed_ms] = [now, this.passed_ms + gap_ms];
    if (!this.element.isConnected || gap_ms > MAX_GAP_MS) {
      this.takeBack();
    } else if (this.passed_ms >= TAKE_BACK_S * 1000) {
      this.end();
      this.host.over();
    } else {
      this.show();
    }
  }

  private show(): void {
    this.text.textContent = `Signing in ${Math.max(1, Math.ceil(TAKE_BACK_S - this.passed_ms / 1000))} …`;
  }
}
