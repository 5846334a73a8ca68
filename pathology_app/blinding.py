"""What may not be shown to whom yet: what a model said of slides that a reader still has to read without help.

Pages and routes ask here before they send anything of a model, of hotspots, or of other readers (docs/studies.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from pathology_app.access.people import Person
from pathology_app.study_ledger import study_ledger_of
from pathology_app.tiles.cache import SlideCache
from pipeline.errors import GemslideError
from pipeline.project import Project
from pipeline.study import Blinded, blinded_slides
from training.foundation.names import is_name


class BlindedError(GemslideError):
    """What was asked for is hidden until a reading is signed."""

    code = "blinded"


def hidden_slides(project: Project, person: Person, slide_id: str | None = None) -> Mapping[str, Blinded]:
    """Slides of which nothing of a model may be shown to somebody, each with the reading that forbids it.

    Args:
        slide_id: ask for one slide alone.

    Raises:
        GemslideError: the ledger does not answer. Then nobody knows, and nothing may be shown.
    """
    if person.name is not None and person.reader is None:
        return {}  # signed in, and no reader
    if slide_id is not None and not is_name(slide_id):
        return {}  # no slide
    ledger = study_ledger_of(project).ledger()
    return blinded_slides(ledger, person.reader, slide_id) if ledger else {}


def check_not_hidden(project: Project, person: Person, slide_id: str) -> None:
    """Raises BlindedError where nothing of a model may be shown of a slide. Raises: as `hidden_slides`."""
    if blinded := hidden_slides(project, person, slide_id).get(slide_id):
        raise BlindedError(f"slide {slide_id}: {why_hidden(blinded)}")


def models_shown(cache: SlideCache, person: Person, slide_id: str) -> tuple[list[str], Blinded | None]:
    """Models whose predictions for a slide may be shown to somebody, and why none may be, where that is so.

    Raises:
        GemslideError, OSError: as `SlideCache.model_ids` and `hidden_slides`.
    """
    blinded = hidden_slides(cache.project, person, slide_id).get(slide_id)
    return ([], blinded) if blinded else (cache.model_ids(slide_id), None)


def why_hidden(blinded: Blinded) -> str:
    """The reason, for people."""
    return (
        f"predictions and other readers' answers are hidden: {blinded.reader} reads it for study {blinded.study_id} "
        f"in the arm “{blinded.arm}”, and has not signed that reading."
    )
