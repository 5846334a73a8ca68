// The keyboard on pages with lists. "/" goes to the filter; each list is one stop of the Tab key, and the first Tab on a page
// leads to it; arrows, Home and End move between its rows. Enter opens a row by itself: its focus is on the row's link.

/** Where the focus goes in a row: its link, or the summary that unfolds it. */
const TARGETS = ".gs-table tbody tr a.gs-go, .gs-cards a.gs-go, .gs-case > summary";
/** Fields that the page wants filled in next, once they appear. */
const FIRST_FIELD = ".st-key-again input";
const STEPS: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1 };

class Rows {
  /** The row that the Tab key reaches, by its list's label and its own link: a redrawn list consists of new elements. */
  private readonly current = new Map<string, string>();
  /** Identity of the row that had the focus; null if the focus is elsewhere. */
  private focused: { list: string; row: string } | null = null;
  /** Whether nothing on this page has been pressed or focused yet. */
  private isFresh = true;
  private place = location.href;
  private isWaiting = false;
  private readonly seen = new WeakSet<Element>();

  constructor() {
    document.addEventListener("keydown", (event) => this.press(event));
    document.addEventListener("pointerdown", () => this.leave(), { capture: true });
    document.addEventListener("focusin", ({ target }) => this.focus(target));
    new MutationObserver(() => this.soon()).observe(document.body, { childList: true, subtree: true });
    this.update();
  }

  /** The person uses the mouse: the focus stays where it puts it. */
  private leave(): void {
    this.isFresh = false;
    this.focused = null;
  }

  /** Update once after all changes of this frame. */
  private soon(): void {
    if (!this.isWaiting) {
      this.isWaiting = true;
      requestAnimationFrame(() => {
        this.isWaiting = false;
        this.update();
      });
    }
  }

  private update(): void {
    if (location.href !== this.place) {
      this.place = location.href;
      this.isFresh = true;
      this.focused = null;
    }
    for (const [list, rows] of lists()) {
      const reached = rows.find((row) => nameOf(row) === this.current.get(list)) ?? rows[0]!;
      rows.forEach((row) => setTab(row, row === reached));
      const isLost = document.activeElement === document.body || document.activeElement === null;
      if (isLost && this.focused?.list === list && this.focused.row === nameOf(reached)) {
        reached.focus(); // the list was redrawn under the focus
      }
    }
    const field = document.querySelector<HTMLElement>(FIRST_FIELD);
    if (field && !this.seen.has(field)) {
      this.seen.add(field);
      field.focus();
    }
  }

  private focus(target: EventTarget | null): void {
    this.isFresh = false;
    const row = target instanceof HTMLElement && target.matches(TARGETS) ? target : null;
    this.focused = row && { list: nameOfList(row), row: nameOf(row) };
    if (row && this.focused) {
      this.current.set(this.focused.list, this.focused.row);
      lists().get(this.focused.list)?.forEach((other) => setTab(other, other === row));
    }
  }

  private press(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const target = event.composedPath()[0];
    if (event.key === "/" && !isTypedInto(target) && focusFilter()) {
      event.preventDefault();
    } else if (event.key === "Tab" && !event.shiftKey && this.isFresh && document.activeElement === document.body) {
      if (focusList()) {
        event.preventDefault();
      }
    } else if (!event.shiftKey && target instanceof HTMLElement && target.matches(TARGETS)) {
      this.move(event, target);
    }
  }

  private move(event: KeyboardEvent, from: HTMLElement): void {
    const rows = lists().get(nameOfList(from)) ?? [];
    const at = rowToGoTo(event.key, rows.indexOf(from), rows.length, columnsOf(rows));
    if (at !== null) {
      event.preventDefault();
      rows[at]!.focus();
    }
  }
}

/**
 * Index of the row to which a key leads from row `at`; null if the key leads nowhere.
 * @param columns cards beside each other; 1 in a table, where left and right are left to the browser.
 */
export function rowToGoTo(key: string, at: number, count: number, columns: number): number | null {
  if (at < 0 || count === 0) {
    return null;
  }
  if (key === "Home" || key === "End") {
    return key === "Home" ? 0 : count - 1;
  }
  const step = STEPS[key];
  const isSideways = key === "ArrowLeft" || key === "ArrowRight";
  if (step === undefined || (isSideways && columns === 1)) {
    return null;
  }
  const next = at + (isSideways ? step : step * columns);
  return next < 0 || next >= count ? at : next;
}

/** Rows that can be opened, by list; a row has one target, the first of its links. */
function lists(): Map<string, HTMLElement[]> {
  const found = new Map<string, HTMLElement[]>();
  const rows = new Set<Element>();
  for (const target of document.querySelectorAll<HTMLElement>(TARGETS)) {
    const row = target.closest("tr, .gs-card") ?? target;
    if (!rows.has(row) && target.getClientRects().length > 0) {
      rows.add(row);
      const list = nameOfList(target);
      found.set(list, [...(found.get(list) ?? []), target]);
    }
  }
  return found;
}

function nameOfList(target: Element): string {
  const list = target.closest(".gs-table, .gs-cards");
  const unfolded = target.closest(".gs-case")?.querySelector("summary")?.textContent ?? "";
  return list ? `${list.getAttribute("aria-label") ?? ""} ${unfolded}` : "cases";
}

function nameOf(target: Element): string {
  return target.getAttribute("href") ?? target.textContent ?? "";
}

function setTab(row: HTMLElement, isReached: boolean): void {
  const wanted = isReached ? 0 : -1;
  if (row.tabIndex !== wanted) {
    row.tabIndex = wanted;
  }
}

function columnsOf(rows: HTMLElement[]): number {
  const top = (row: HTMLElement): number => Math.round((row.closest(".gs-card") ?? row).getBoundingClientRect().top);
  const first = rows[0];
  return first?.closest(".gs-card") ? Math.max(1, rows.filter((row) => top(row) === top(first)).length) : 1;
}

/** Move the focus to the first list, to the row that the Tab key reaches. Returns whether there is a list. */
export function focusList(): boolean {
  const row = [...lists().values()][0]?.find(({ tabIndex }) => tabIndex === 0);
  row?.focus();
  return row !== undefined;
}

/** Whether a key pressed there is text. */
function isTypedInto(target: EventTarget | undefined): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}

/** Move the focus to the page's filter, which is in a shadow root. Returns whether there is one. */
function focusFilter(): boolean {
  for (const host of document.querySelectorAll("[data-testid^=stBidiComponent], [data-testid^=stBidiComponent] *")) {
    const field = host.shadowRoot?.querySelector<HTMLInputElement>("input[type=search]");
    if (field) {
      field.focus();
      field.select();
      return true;
    }
  }
  return false;
}

let rows: Rows | null = null;

/** Handle the keys of lists for as long as the page is open. */
export function watchRows(): void {
  rows ??= new Rows();
}
