"""The sign-out page's lists: what was signed in this session, what is open, and what only the browser keeps."""

from __future__ import annotations

import html
from collections.abc import Sequence
from urllib.parse import urlencode

from pathology_app.access.plain_page import paragraph
from pathology_app.people.person import Person
from pathology_app.people.sign_in import SignIn
from pathology_app.readings.at_sign_out import WorkItem, work_done
from pathology_app.readings.drafts import draft_owner
from pathology_app.viewer.bundle import bundle_path
from training.foundation.errors import GemslideError

MAX_LISTED = 100
"""Entries of one list; a person can sign hundreds of readings in a day."""


def unfinished_html(sign_in: SignIn, person: Person, key: str | None) -> str:
    """The lists, of this person's own work alone. A ledger that does not answer is reported in their place.

    Args:
        key: of the session.
    """
    try:
        began_s = sign_in.began_s(key) if key is not None else None
        done = work_done(sign_in.project, person, began_s or 0.0)
    except (GemslideError, OSError):
        lists = paragraph("What you have signed cannot be listed right now: the project's ledger does not answer.")
    else:
        lists = _list("Signed since you signed in", done.signed, "Nothing.")
        lists += _list("Open: started, not signed", done.open, "Nothing.")
    owner = draft_owner(sign_in.project.root, person)
    return lists + (
        f'<h2>Not saved</h2>\n<div data-drafts-of="{html.escape(owner)}">'
        + paragraph("Without scripts, this page cannot tell what only this browser keeps.")
        + f'</div>\n<script type="module" src="/viewer/{html.escape(bundle_path().name)}"></script>\n'
    )


def _list(title: str, items: Sequence[WorkItem], nothing: str) -> str:
    links = "".join(
        f'<li><a href="/?{html.escape(urlencode(item.query))}">{html.escape(item.text)}</a></li>\n'
        for item in items[-MAX_LISTED:]
    )
    more = len(items) - MAX_LISTED
    shown = f"<ul>\n{links}</ul>\n" if items else paragraph(nothing)
    return f"<h2>{html.escape(title)} ({len(items):,})</h2>\n{shown}" + (
        paragraph(f"… and {more:,} earlier ones.") if more > 0 else ""
    )
