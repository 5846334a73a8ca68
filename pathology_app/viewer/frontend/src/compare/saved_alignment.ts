// Registrations that the project keeps: loaded at opening, saved after clicks, found from the tissue on request.
import { box, button } from "../panel/elements";
import type { Point } from "../view/geometry";
import { type Registration, registrationOfMatrix } from "./registration";

const RESEARCH_USE = "Research use only: check that the views show the same places.";

/** A registration of the first view's slide to another (pathology_app/registering/routes.py). */
export interface SavedRegistration {
  to: string;
  matrix_um: number[];
  method: "features" | "points";
  error_um: number | null;
  /** Both in plain words. */
  transform: string;
  error: string;
  /** null where other people's work on a slide is hidden. */
  by: string | null;
  utc: string;
  is_outdated: boolean;
}

export interface SavedEvents {
  /** Views of a slide are to follow this registration. */
  apply(slideId: string, registration: Registration): void;
  say(text: string): void;
}

export class SavedAlignments {
  /** For the toolbar. */
  readonly buttons = box("group");
  /** What is saved, in words. */
  readonly notes = box("saved-alignment");
  private readonly finding: HTMLButtonElement;
  private readonly removing: HTMLButtonElement;
  private readonly others: string[];
  private saved: SavedRegistration[] = [];
  private isBusy = false;

  /**
   * @param slideIds of the views in their order.
   * @param mayRegister whether the person may save registrations.
   */
  constructor(
    slideIds: string[],
    private readonly mayRegister: boolean,
    private readonly events: SavedEvents,
    private readonly signal: AbortSignal,
  ) {
    this.first = slideIds[0] ?? "";
    this.others = [...new Set(slideIds)].filter((slideId) => slideId !== this.first);
    this.finding = button("Align by tissue", "Find the same tissue on the slides, and save how they lie", () => void this.findTissue());
    this.removing = button("Remove saved", "Remove the saved alignment of these slides, for everybody", () => void this.remove());
    this.buttons.append(this.finding, this.removing);
    this.show();
  }

  private readonly first: string;

  /** Load what is saved, and apply it unless the link has an alignment of its own. */
  async load(isApplied: boolean): Promise<void> {
    if (this.others.length) {
      const to = this.others.map(encodeURIComponent).join(",");
      const answer = await this.ask<{ registrations: SavedRegistration[] }>(`/registrations/${encodeURIComponent(this.first)}.json?to=${to}`);
      this.saved = answer?.registrations ?? [];
      this.saved.forEach((one) => isApplied && !one.is_outdated && this.apply(one));
      this.show();
    }
  }

  /** Save the places that were clicked on the first slide and on another; level-0 pixels. */
  async savePoints(slideId: string, first: Point[], other: Point[]): Promise<void> {
    if (this.mayRegister && this.others.includes(slideId)) {
      const points = first.map(({ x, y }, index) => [[x, y], [other[index]!.x, other[index]!.y]]);
      await this.make(slideId, "points", { points });
    }
  }

  private async findTissue(): Promise<void> {
    this.busy(true);
    for (const slideId of this.others) {
      this.events.say(`Comparing the tissue of ${this.first} and ${slideId}; this takes up to a minute.`);
      if (!(await this.make(slideId, "tissue", {}))) {
        break;
      }
    }
    this.busy(false);
  }

  private async make(slideId: string, way: "points" | "tissue", body: object): Promise<boolean> {
    const made = await this.ask<SavedRegistration>(this.link(slideId, way), body);
    if (made) {
      this.saved = [...this.saved.filter(({ to }) => to !== slideId), made];
      this.apply(made);
      this.events.say(`Aligned and saved: ${made.error}.`);
      this.show();
    }
    return made !== null;
  }

  private async remove(): Promise<void> {
    this.busy(true);
    for (const { to } of this.saved) {
      if (!(await this.ask(this.link(to, "remove"), {}))) {
        break;
      }
      this.saved = this.saved.filter((one) => one.to !== to);
      this.events.say("The saved alignment was removed. The views keep theirs until the page is opened again.");
    }
    this.busy(false);
  }

  private apply(one: SavedRegistration): void {
    const registration = registrationOfMatrix(one.matrix_um);
    if (registration) {
      this.events.apply(one.to, registration);
    }
  }

  private link(slideId: string, way: string): string {
    return `/registrations/${encodeURIComponent(this.first)}/${encodeURIComponent(slideId)}/${way}`;
  }

  /** An answer of the server; null, and a message, if it refuses. */
  private async ask<Answer>(url: string, body?: object): Promise<Answer | null> {
    const { signal } = this;
    const sent = body === undefined ? { signal } : { method: "POST", body: JSON.stringify(body), signal };
    const response = await fetch(url, sent).catch(() => null);
    if (signal.aborted) {
      return null;
    }
    const answer: unknown = await response?.json().catch(() => null);
    if (response?.ok) {
      return answer as Answer;
    }
    const message = (answer as { message?: string } | null)?.message;
    this.events.say(message ?? "The server does not answer. The alignment was not saved; try again.");
    return null;
  }

  private busy(isBusy: boolean): void {
    this.isBusy = isBusy;
    this.show();
  }

  private show(): void {
    const rows = this.saved.map((one) => {
      const by = one.by === null ? "" : `, by ${one.by}`;
      const outdated = one.is_outdated ? " Not used: a slide was ingested from another file since." : "";
      const row = box("note", `${one.to}: ${one.error}${by}, ${one.utc.slice(0, 10)}.${outdated}`);
      row.title = one.transform;
      return row;
    });
    this.notes.replaceChildren(...rows, ...(rows.length ? [box("note", RESEARCH_USE)] : []));
    this.finding.hidden = !this.mayRegister || !this.others.length;
    this.removing.hidden = !this.mayRegister || !this.saved.length;
    this.finding.disabled = this.removing.disabled = this.isBusy;
    this.notes.hidden = !rows.length;
  }
}
