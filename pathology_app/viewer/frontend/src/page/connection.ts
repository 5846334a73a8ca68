// Notice that the server has stopped, in place of Streamlit's question about the internet; removed when the server is back.
//
// Streamlit reconnects by itself and shows a dialog meanwhile. When that dialog appears, or the browser goes online or
// offline, the server is polled directly until it answers.

const HEALTH = "/_stcore/health";
const AGAIN_MS = 1000;
const STOPPED = "gemslide has stopped or cannot be reached.";
const KEPT = "Everything that was saved is safe, and this page stays as it is. Start gemslide again with";
const COMMAND = "gemslide app --project PROJECT";
const AFTER = "on the computer where it was running, with the same port (--port). This page then reconnects by itself.";
const LOG_IN = "gemslide has restarted and needs you to log in. Open the link that it printed in its terminal, then return to this page.";
/** Texts of Streamlit's connection dialogs and notes, which have no other mark to recognise them by. */
const OF_STREAMLIT = /Connection error|Is Streamlit still running|Streamlit server is not responding|Cannot connect to Streamlit/;
const STYLE = `
  .gemslide-stopped { position: fixed; inset: 0; z-index: 2147483000; display: grid; place-items: center; padding: 24px;
    background: rgba(16, 19, 27, 0.55); font: 16px/1.5 system-ui, sans-serif; }
  .gemslide-stopped > div { max-width: 34rem; padding: 24px 28px; border-radius: 12px; border: 1px solid #8a90a0;
    color: light-dark(#1f2430, #eceef4); background: light-dark(#ffffff, #1d212b); color-scheme: light dark; }
  .gemslide-stopped h2 { margin: 0 0 10px; font-size: 1.2rem; }
  .gemslide-stopped p { margin: 0 0 8px; }
  .gemslide-stopped code { display: block; margin: 8px 0; padding: 8px 12px; border-radius: 6px; overflow-wrap: anywhere;
    background: light-dark(#f1f2f5, #12151c); font: 15px/1.4 ui-monospace, monospace; }
  body:has(> .gemslide-stopped) [data-testid="stDialog"] { display: none; }
`;

class Connection {
  private readonly shown = document.createElement("div");
  private isAsking = false;

  constructor() {
    this.shown.className = "gemslide-stopped";
    this.shown.setAttribute("role", "alertdialog");
    this.shown.setAttribute("aria-label", STOPPED);
    const style = document.createElement("style");
    style.textContent = STYLE;
    document.head.append(style);
    new MutationObserver((changes) => {
      if (changes.some(({ addedNodes }) => [...addedNodes].some(isOfStreamlit))) {
        this.ask();
      }
    }).observe(document.body, { childList: true, subtree: true });
    window.addEventListener("offline", () => this.ask());
    window.addEventListener("online", () => this.ask());
  }

  /** Poll the server until it answers. */
  private ask(): void {
    if (!this.isAsking) {
      this.isAsking = true;
      void this.askAgain();
    }
  }

  private async askAgain(): Promise<void> {
    const status = await fetch(HEALTH, { cache: "no-store" }).then(({ status }) => status, () => 0);
    if (status >= 200 && status < 300) {
      this.isAsking = false;
      this.shown.remove();
      closeDialogs();
      return;
    }
    this.show(status === 401);
    window.setTimeout(() => void this.askAgain(), AGAIN_MS);
  }

  private show(mustLogIn: boolean): void {
    const box = document.createElement("div");
    if (mustLogIn) {
      box.append(element("h2", "Log in again"), element("p", LOG_IN));
    } else {
      box.append(element("h2", STOPPED), element("p", KEPT), element("code", COMMAND), element("p", AFTER));
    }
    if (this.shown.textContent !== box.textContent) {
      this.shown.replaceChildren(box);
    }
    if (!this.shown.isConnected) {
      document.body.append(this.shown);
    }
  }
}

function isOfStreamlit(node: Node): boolean {
  return node instanceof HTMLElement && !node.classList.contains("gemslide-stopped") && OF_STREAMLIT.test(node.textContent ?? "");
}

/** Streamlit does not close its dialog when the connection is back. */
function closeDialogs(): void {
  for (const dialog of document.querySelectorAll<HTMLElement>("[data-testid=stDialog]")) {
    if (OF_STREAMLIT.test(dialog.textContent ?? "")) {
      dialog.querySelector<HTMLButtonElement>("button[aria-label=Close]")?.click();
    }
  }
}

function element(name: string, text: string): HTMLElement {
  const created = document.createElement(name);
  created.textContent = text;
  return created;
}

let connection: Connection | null = null;

/** Watch the connection for as long as the page is open. */
export function watchConnection(): void {
  connection ??= new Connection();
}
