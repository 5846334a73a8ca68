// The sign-out page's list of answers that only this browser keeps (access/unfinished.py).
import { Drafts } from "../reading/drafts";
import { storeOfBrowser } from "./stores";

export function listUnsaved(): void {
  const place = document.querySelector<HTMLElement>("[data-drafts-of]");
  if (!place) {
    return;
  }
  const drafts = new Drafts(storeOfBrowser()).of(place.dataset.draftsOf ?? "");
  const list = document.createElement("ul");
  for (const { title, link } of drafts) {
    const anchor = document.createElement("a");
    anchor.textContent = title;
    anchor.href = `/${link.startsWith("?") ? link : ""}`;
    const entry = document.createElement("li");
    entry.append(anchor);
    list.append(entry);
  }
  const text = document.createElement("p");
  text.textContent = drafts.length ? "Only this browser keeps them, for you, until you sign:" : "Nothing: the server has everything that you typed.";
  place.replaceChildren(text, ...(drafts.length ? [list] : []));
}
