// Small pieces on their way to the server: kept until it has them, and sent on leaving.

const TIMEOUT_MS = 15_000;

export class Outbox {
  private isSending = false;

  constructor(
    private readonly url: string,
    /** Called with what is wrong when a piece was refused or could not be sent, and with "" when all is well. */
    private readonly said: (problem: string) => void,
  ) {}

  /**
   * Send a piece. @returns whether the server has it; false also while another one is on its way.
   * A piece that the server refuses for good counts as sent: it would be refused again.
   */
  async send(piece: object): Promise<boolean> {
    if (this.isSending) {
      return false;
    }
    this.isSending = true;
    try {
      const response = await fetch(this.url, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(piece),
        keepalive: true,
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      this.said(response.ok ? "" : await messageOf(response));
      return response.ok || (response.status >= 400 && response.status < 500);
    } catch {
      this.said("What you look at and judge cannot be saved now: the server does not answer.");
      return false;
    } finally {
      this.isSending = false;
    }
  }

  /** On leaving the page: nobody can wait for the answer. */
  sendLast(piece: object): boolean {
    return navigator.sendBeacon(this.url, new Blob([JSON.stringify(piece)], { type: "application/json" }));
  }
}

export async function messageOf(response: Response): Promise<string> {
  try {
    return String(((await response.json()) as { message: unknown }).message);
  } catch {
    return `The server answered ${response.status}.`;
  }
}
