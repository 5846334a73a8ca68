"""Reviews of slides outside all studies: agreement with a prediction, a label of one's own, a comment, signed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select

from pipeline.errors import BadManifestError
from pipeline.ledger.chain import digest, utc_now
from pipeline.ledger.ledger import Ledger
from pipeline.review.rows.tables import VERDICTS, review
from pipeline.review.rows.view_context import ViewContext, change_of, log

MAX_LABEL, MAX_COMMENT, MAX_NAME = 200, 10_000, 200
REVIEWED = "slide reviewed"


@dataclass(frozen=True)
class SlideReview:
    """One review as it is given, and as it is read back (`utc` and `person` are then there).

    Attributes:
        verdict: one of `VERDICTS`.
        name: as the reviewer signs.
        model_id, class_name, predictions_sha256: the prediction that was on the screen; None where there was none.
    """

    verdict: str
    name: str
    label: str = ""
    comment: str = ""
    model_id: str | None = None
    class_name: str | None = None
    predictions_sha256: str | None = None
    person: str = ""
    utc: str = ""


def add_review(ledger: Ledger, context: ViewContext, said: SlideReview) -> None:
    """Keep a review. A second one by the same person stands beside the first.

    Raises:
        BadManifestError: no name, no verdict, or text that is too long.
    """
    _check(said)
    with ledger.database.write() as connection:
        row: dict[str, Any] = {"review_id": secrets.token_hex(16), "slide_id": context.slide_id}
        row["study_id"] = context.study_id
        row |= {name: getattr(said, name) for name in _SAID} | {"person": context.person, "utc": utc_now()}
        connection.execute(insert(review).values(row))
        text = {"comment_sha256": digest(said.comment), "verdict": said.verdict}
        log(connection, context, [change_of(context, REVIEWED, review, row, **text)])


def reviews_of(ledger: Ledger, slide_id: str) -> Sequence[SlideReview]:
    """All reviews of a slide, oldest first."""
    with ledger.database.read() as connection:
        chosen = select(review).where(review.c.slide_id == slide_id).order_by(review.c.utc, review.c.review_id)
        rows = connection.execute(chosen).all()
    return [SlideReview(**{name: row._mapping[name] for name in (*_SAID, "person", "utc")}) for row in rows]


_SAID = ("verdict", "name", "label", "comment", "model_id", "class_name", "predictions_sha256")


def _check(said: SlideReview) -> None:
    if not said.verdict:
        raise BadManifestError("a review needs its verdict: agree, disagree, or cannot judge.")
    if said.verdict not in VERDICTS:
        raise BadManifestError(f"verdict {said.verdict!r:.40}: choose one of {', '.join(VERDICTS)}.")
    if not said.name.strip():
        raise BadManifestError("a review is signed: type your name.")
    for what, text, longest in (
        ("name", said.name, MAX_NAME),
        ("label", said.label, MAX_LABEL),
        ("comment", said.comment, MAX_COMMENT),
    ):
        if len(text) > longest or not text.replace("\n", " ").isprintable():
            raise BadManifestError(f"{what}: at most {longest} characters, and only such that can be printed.")
