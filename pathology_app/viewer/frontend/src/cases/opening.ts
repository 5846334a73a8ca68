// Opens a slide in place of the one shown: the slide itself at once, and its page with everything else behind it.
import type { ViewerData } from "../types";
import { goTo } from "../page/links";
import { answerOf, type Neighbour, openingOf } from "./api";
import type { Beside } from "./beside";
import type { Prepared } from "./ahead";

/** On the document while the page still shows the name of the slide that was left (html/style.py). */
const SWITCHING = "gs-switching";

export interface Opened {
  data: ViewerData;
  prepared: Prepared | null;
}

/**
 * Ask for a slide, which logs its view, and let the page follow. The page reports a slide that cannot be opened.
 * @returns null if the slide cannot be shown before its page.
 */
export async function openBeside(neighbour: Neighbour, { ahead }: Beside, signal: AbortSignal): Promise<Opened | null> {
  const url = openingOf(neighbour.slide_id, neighbour.query["model"] ?? null);
  let opened: Opened | null = null;
  try {
    const data = await answerOf<ViewerData>(url, signal);
    opened = { data, prepared: await ahead.take(data.slide) };
  } catch {
    if (signal.aborted) {
      return null;
    }
  }
  if (opened) {
    document.documentElement.classList.add(SWITCHING);
  }
  goTo(neighbour.query);
  return opened;
}

/** The page shows the slide that its viewer shows. */
export function pageFollowed(): void {
  document.documentElement.classList.remove(SWITCHING);
}

/** Whether the page is still to follow, and this data is of the slide that was left: the link names another by now. */
export function isLeft(slideId: string): boolean {
  const named = new URLSearchParams(window.location.search).get("slide");
  return document.documentElement.classList.contains(SWITCHING) && named !== slideId;
}
