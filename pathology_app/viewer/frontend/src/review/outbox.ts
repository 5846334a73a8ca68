// Sends small messages to the server, also when the page is left.

const TIMEOUT_MS = 15_000;

export class Outbox {
  private isSending = false;

  constructor(
    private readonly url: string,
    /** Called with the problem if a message was refused or could not be sent, and with "" on success. */
    private readonly report: (problem: string) => void,
  ) {}

  /**
   * Send a message. @returns whether the server has it; also false while another message is being sent.
   * A message that the server rejects (4xx) counts as sent, since it would be rejected again.
   */
  async send(message: object): Promise<boolean> {
    if (this.isSending) {
      return false;
    }
    this.isSending = true;
    try {
      const response = await fetch(this.url, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(message),
        keepalive: true,
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      this.report(response.ok ? "" : await messageOf(response));
      return response.ok || (response.status >= 400 && response.status < 500);
    } catch {
      this.report("Viewed areas and judgements cannot be saved at present: the server is not responding.");
      return false;
    } finally {
      this.isSending = false;
    }
  }

  /** Send while the page is being left, without waiting for the answer. */
  sendLast(message: object): boolean {
    return navigator.sendBeacon(this.url, new Blob([JSON.stringify(message)], { type: "application/json" }));
  }
}

export async function messageOf(response: Response): Promise<string> {
  try {
    return String(((await response.json()) as { message: unknown }).message);
  } catch {
    return `The server answered ${response.status}.`;
  }
}
