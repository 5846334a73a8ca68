"""Log of every view of a slide: once each time it is opened, before any of it is shown.

Where people sign in, a slide whose view cannot be logged is not shown. Elsewhere views are logged if the project
already has a ledger.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime

from pathology_app.access.visibility import HiddenSlideError, check_may_see
from pathology_app.html.text import READ_ERRORS
from pathology_app.people.person import Person
from pathology_app.people.sign_in import SignIn
from pathology_app.project.ledger import current_study_ledger
from pathology_app.project.served import served_project
from pathology_app.slides.cache import SlideCache, attention_named, not_in_project
from pipeline.ledger import Change, Ledger, LogFilter, log_in_project, project_history, slide_subject

OPENED = "slide opened"
REFUSED_SLIDE = "hidden slide"
_MAX_REMEMBERED = 20_000
_LOOKS_BACK = 50
OPENING_S = 30.0
"""Time within which the page of an opened slide is drawn."""
_MAX_OPENED = 1_000
_LOCK = threading.Lock()
_SEEN: OrderedDict[tuple[str, str], None] = OrderedDict()
"""Session and slide of views that are known to be logged."""
_OPENED: OrderedDict[tuple[str, str], float] = OrderedDict()
"""Session and slide of openings whose pages are still to be drawn, and when they were logged."""


def check_view(sign_in: SignIn | None, key: str | None, person: Person, slide_id: str) -> None:
    """Log a request for tiles without a page, unless this session's view is logged. Routes call it after `check_slide`.

    Args:
        key: of the request's session; None where nobody signs in, and nothing is logged here.

    Raises:
        GemslideError: it cannot be logged.
    """
    if sign_in is None or key is None or is_viewed(key, slide_id):
        return
    if not _store_exists(slide_id):
        return  # the route reports that
    ledger = ledger_of(sign_in)
    if ledger and not _is_logged(ledger, sign_in, key, person, slide_id):
        log(ledger, person, slide_id, {"page": "tiles"})
    remember(key, slide_id)


def check_slide(sign_in: SignIn | None, person: Person, slide_id: str) -> None:
    """Refuse a slide that a person may not see, and log the refusal.

    Raises:
        HiddenSlideError: they may not see it. GemslideError: this cannot be checked.
    """
    try:
        check_may_see(person, slide_id)
    except HiddenSlideError:
        if sign_in is not None:
            sign_in.refusals.note(person.actor, REFUSED_SLIDE, about=slide_id)
        raise


def check_attended(cache: SlideCache, sign_in: SignIn, person: Person, slide_id: str, model_id: str) -> None:
    """Refuse results of a slide-level model that rest on a slide hidden from the person, and log the refusal.

    Raises:
        HiddenSlideError: they do; the message is that for a model without results, and names no slide of the patient
            but the one asked for. GemslideError: this cannot be checked.
    """
    try:
        slides = cache.attention(slide_id, model_id).slides
    except READ_ERRORS:
        return  # the route reports that
    hidden = HiddenSlideError(not_in_project(attention_named(slide_id, model_id)))
    if not slides:
        raise hidden  # what it rests on is not known
    try:
        for other in slides:
            check_slide(sign_in, person, other)
    except HiddenSlideError as error:
        raise hidden from error


def ledger_of(sign_in: SignIn | None) -> Ledger | None:
    """Ledger for logging views; None: they are not logged. Raises: as `open_ledger`."""
    return sign_in.ledger_for_log() if sign_in is not None else current_study_ledger().ledger()


def log(ledger: Ledger | None, person: Person, slide_id: str, details: Mapping[str, str]) -> None:
    """Log one view. Raises: as `log_in_project`."""
    if ledger is not None:
        log_in_project(ledger, [Change(person.actor, OPENED, slide_subject(slide_id), details=details)])


def log_opening(sign_in: SignIn | None, key: str, person: Person, slide_id: str, model_id: str | None) -> None:
    """Log the view of a slide that the viewer shows before its page is drawn; the page does not log it again.

    Args:
        key: of the request's session, as `current_sign_in` names it.

    Raises:
        HiddenSlideError: the person may not see it. GemslideError: people sign in here, and it cannot be logged.
    """
    check_slide(sign_in, person, slide_id)
    details = {"page": "slide", **({"model": model_id} if model_id else {})}
    log(ledger_of(sign_in), person, slide_id, details)
    remember(key, slide_id)
    with _LOCK:
        _OPENED[key, slide_id] = time.monotonic()
        while len(_OPENED) > _MAX_OPENED:
            _OPENED.popitem(last=False)


def take_opening(key: str, slide_id: str) -> bool:
    """Whether a session's opening of a slide has just been logged by `log_opening`. True only once per opening."""
    with _LOCK:
        logged_s = _OPENED.pop((key, slide_id), None)
    return logged_s is not None and time.monotonic() - logged_s < OPENING_S


def _is_logged(ledger: Ledger, sign_in: SignIn, key: str, person: Person, slide_id: str) -> bool:
    """Whether the person's view was logged since the session began, perhaps by a page in another process."""
    session = sign_in.session_cache.find(key, active=False)
    begun = datetime.fromtimestamp(session.made if session else 0, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    own_views = LogFilter(subject=slide_subject(slide_id), actor=person.actor)
    entries = project_history(ledger, own_views, newest=_LOOKS_BACK)
    return any(entry.action == OPENED and entry.utc >= begun for entry in entries)


def is_viewed(key: str, slide_id: str) -> bool:
    """Whether this process knows that a session's view of a slide is logged."""
    with _LOCK:
        return (key, slide_id) in _SEEN


def remember(key: str, slide_id: str) -> None:
    """Remember that a session's view is logged."""
    with _LOCK:
        _SEEN[key, slide_id] = None
        while len(_SEEN) > _MAX_REMEMBERED:
            _SEEN.popitem(last=False)


def _store_exists(slide_id: str) -> bool:
    return served_project().has_store(slide_id)
