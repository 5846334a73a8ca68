"""Every view of a slide, in the project's log: once for each opening, before anything of it is shown.

Where people sign in, a slide that cannot be logged is not shown. Elsewhere views are logged where the project has a
ledger already.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime

from pathology_app.access.visibility import HiddenSlideError, check_may_see
from pathology_app.people.person import Person
from pathology_app.people.sign_in import SignIn
from pathology_app.project.ledger import current_study_ledger
from pathology_app.project.served import served_project
from pipeline.ledger import Change, Ledger, LogFilter, log_in_project, project_history, slide_subject

OPENED = "slide opened"
REFUSED_SLIDE = "hidden slide"
_MAX_REMEMBERED = 20_000
_LOOKS_BACK = 50
_LOCK = threading.Lock()
_SEEN: OrderedDict[tuple[str, str], None] = OrderedDict()
"""Session and slide of views that are known to be in the log."""


def check_view(sign_in: SignIn | None, key: str | None, person: Person, slide_id: str) -> None:
    """For a route, after `check_slide`: whoever asks for tiles without a page is logged, unless this session's view is.

    Args:
        key: of the session that asks; None where nobody signs in, and nothing is logged here.

    Raises:
        GemslideError: it cannot be logged.
    """
    if sign_in is None or key is None or is_viewed(key, slide_id):
        return
    if not _is_there(slide_id):
        return  # the route says so
    ledger = ledger_of(sign_in)
    if ledger and not _is_logged(ledger, sign_in, key, person, slide_id):
        log(ledger, person, slide_id, {"page": "tiles"})
    remember(key, slide_id)


def check_slide(sign_in: SignIn | None, person: Person, slide_id: str) -> None:
    """Refuse a slide that is not a person's to see, and log that.

    Raises:
        HiddenSlideError: not theirs. GemslideError: it cannot be known.
    """
    try:
        check_may_see(person, slide_id)
    except HiddenSlideError:
        if sign_in is not None:
            sign_in.refusals.note(person.actor, REFUSED_SLIDE, about=slide_id)
        raise


def ledger_of(sign_in: SignIn | None) -> Ledger | None:
    """Ledger that views are logged in; None: nowhere. Raises: as `open_ledger`."""
    return sign_in.ledger_for_log() if sign_in is not None else current_study_ledger().ledger()


def log(ledger: Ledger | None, person: Person, slide_id: str, details: Mapping[str, str]) -> None:
    """Put one view into the log. Raises: as `log_in_project`."""
    if ledger is not None:
        log_in_project(ledger, [Change(person.actor, OPENED, slide_subject(slide_id), details=details)])


def _is_logged(ledger: Ledger, sign_in: SignIn, key: str, person: Person, slide_id: str) -> bool:
    """Whether the person's view is in the log since the session began, as a page in another process has written it."""
    session = sign_in.session_cache.find(key, active=False)
    begun = datetime.fromtimestamp(session.made if session else 0, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    wanted = LogFilter(subject=slide_subject(slide_id), actor=person.actor)
    entries = project_history(ledger, wanted, newest=_LOOKS_BACK)
    return any(entry.action == OPENED and entry.utc >= begun for entry in entries)


def is_viewed(key: str, slide_id: str) -> bool:
    """Whether this process knows that a session's view of a slide is in the log."""
    with _LOCK:
        return (key, slide_id) in _SEEN


def remember(key: str, slide_id: str) -> None:
    """A session's view is in the log."""
    with _LOCK:
        _SEEN[key, slide_id] = None
        while len(_SEEN) > _MAX_REMEMBERED:
            _SEEN.popitem(last=False)


def _is_there(slide_id: str) -> bool:
    return os.path.lexists(served_project().store_path(slide_id) / "zarr.json")
