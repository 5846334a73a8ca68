"""Changes to a study, and reviews of slides: each function checks the person's right, then performs the act."""

from __future__ import annotations

from collections.abc import Sequence

from pathology_app.access.visibility import check_may_see
from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import Person
from pathology_app.project.ledger import current_study_ledger
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Shows, check_shown
from pipeline.ledger import Ledger
from pipeline.review import SlideReview, ViewContext, add_review
from pipeline.study import SlideSearch, cleaned_reason, retry


def retry_slides(
    person: Person,
    ledger: Ledger,
    study_id: str,
    slide_ids: Sequence[str] = (),
    ended: SlideSearch | None = None,
    *,
    actor: str,
    why: str,
) -> list[str]:
    """Retry slides: those named, or all with the given end. Raises: ForbiddenError; as `retry`."""
    check_act(person, Act.RETRY)
    state, code = (ended.state, ended.code) if ended else (None, None)
    why = cleaned_reason(served_project(), study_id, ledger, why)
    return list(retry(ledger, study_id, slide_ids, state, actor=actor, why=why, code=code))


def set_study_state(person: Person, ledger: Ledger, study_id: str, state: str, *, actor: str, why: str) -> bool:
    """Pause ("paused") or resume ("running") a study. Raises: ForbiddenError; as `Ledger.set_state`."""
    check_act(person, Act.PAUSE if state == "paused" else Act.RESUME)
    why = cleaned_reason(served_project(), study_id, ledger, why)
    has_changed: bool = ledger.set_state(study_id, state, actor=actor, why=why)
    return has_changed


def review_slide(person: Person, slide_id: str, review: SlideReview) -> None:
    """Store a signed review of a slide. Raises: ForbiddenError, HiddenSlideError, BlindedError; as `add_review`."""
    check_act(person, Act.REVIEW)
    check_may_see(person, slide_id)
    for shows in (Shows.RESULT, Shows.PREDICTION):
        check_shown(served_project(), person, shows, slide_id)
    add_review(current_study_ledger().made(), ViewContext(slide_id, person.actor, person.actor), review)
