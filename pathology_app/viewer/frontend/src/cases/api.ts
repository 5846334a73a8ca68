// Slides beside the one shown (pathology_app/cases/routes.py).

/** As Python's `is_name`. */
const NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/;

export interface Neighbour {
  slide_id: string;
  /** null if the slide cannot be read. */
  thumbnail_url: string | null;
  /** Of the manifest; "" if not known. */
  block: string;
  stain: string;
  /** The query of its page. */
  query: Record<string, string>;
}

export interface Tray {
  /** "Case P-17", or the list that the slides are in. */
  title: string;
  /** Whether they are one case. */
  is_case: boolean;
  slides: Neighbour[];
}

/** @param url as the page names it; the page's own query is sent with it. */
export async function trayOf(url: string, signal: AbortSignal): Promise<Tray> {
  return answerOf<Tray>(`${url}${window.location.search}`, signal);
}

/** A JSON answer. Rejects with the server's message. */
export async function answerOf<Answer>(url: string, signal: AbortSignal): Promise<Answer> {
  const response = await fetch(url, { signal });
  const answer: unknown = await response.json().catch(() => null);
  if (!response.ok || answer === null) {
    throw new Error((answer as { message?: string } | null)?.message ?? `The server answered ${response.status}.`);
  }
  return answer as Answer;
}

/** Where a slide is opened before its page is drawn, as the page's head has it (serving/first_page.py). */
export function openingOf(slideId: string, model: string | null): string {
  return `/opened/${encodeURIComponent(slideId)}.json${model && NAME.test(model) ? `?model=${model}` : ""}`;
}

/** The slide's link. */
export function hrefOf({ query }: Neighbour): string {
  return `${window.location.pathname}?${new URLSearchParams(query).toString()}`;
}

/** "A2, HE", as far as known. */
export function partsOf({ block, stain }: { block: string; stain: string }): string {
  return [block, stain].filter(Boolean).join(", ");
}
