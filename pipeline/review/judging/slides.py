"""Signed reviews of slides outside studies: agreement with a prediction, the reviewer's own label, a comment."""

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
    """One review, as given and as read back (then with `utc` and `person`).

    Attributes:
        verdict: one of `VERDICTS`.
        name: the name the reviewer signs with.
        model_id, class_name, predictions_sha256: the prediction on the screen; None if there was none.
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


def add_review(ledger: Ledger, context: ViewContext, given: SlideReview) -> None:
    """Store a review. A second one by the same person is kept beside the first.

    Raises:
        BadManifestError: no name, no verdict, or text that is too long.
    """
    _check(given)
    with ledger.database.write() as connection:
        row: dict[str, Any] = {"review_id": secrets.token_hex(16), "slide_id": context.slide_id}
        row["study_id"] = context.study_id
        row |= {name: getattr(given, name) for name in _GIVEN} | {"person": context.person, "utc": utc_now()}
        connection.execute(insert(review).values(row))
        text = {"comment_sha256": digest(given.comment), "verdict": given.verdict}
        log(connection, context, [change_of(context, REVIEWED, review, row, **text)])


def reviews_of(ledger: Ledger, slide_id: str) -> Sequence[SlideReview]:
    """All reviews of a slide, oldest first."""
    with ledger.database.read() as connection:
        chosen = select(review).where(review.c.slide_id == slide_id).order_by(review.c.utc, review.c.review_id)
        rows = connection.execute(chosen).all()
    return [SlideReview(**{name: row._mapping[name] for name in (*_GIVEN, "person", "utc")}) for row in rows]


def reviewed_since(ledger: Ledger, person: str, since_utc: str) -> list[str]:
    """Slides that a person has reviewed since a time, each once, in the order of their names."""
    chosen = select(review.c.slide_id).where(review.c.person == person, review.c.utc >= since_utc).distinct()
    with ledger.database.read() as connection:
        return list(connection.scalars(chosen.order_by(review.c.slide_id)))


_GIVEN = ("verdict", "name", "label", "comment", "model_id", "class_name", "predictions_sha256")


def _check(given: SlideReview) -> None:
    if not given.verdict:
        raise BadManifestError("a review needs a verdict: agree, disagree, or cannot judge.")
    if given.verdict not in VERDICTS:
        raise BadManifestError(f"verdict {given.verdict!r:.40}: choose one of {', '.join(VERDICTS)}.")
    if not given.name.strip():
        raise BadManifestError("a review must be signed: type your name.")
    for what, text, longest in (
        ("name", given.name, MAX_NAME),
        ("label", given.label, MAX_LABEL),
        ("comment", given.comment, MAX_COMMENT),
    ):
        if len(text) > longest or not text.replace("\n", " ").isprintable():
            raise BadManifestError(f"{what}: at most {longest} characters, all of them printable.")
