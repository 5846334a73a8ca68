"""Tables of people's findings on slides, in the ledger's database (docs/store.md).

Annotations (`saving.py`), judged hotspots, coverage and reviews. Their log entries are in the study's log, or in the
project's outside studies.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
)
from sqlalchemy import Text as LongText

from pipeline.ledger import metadata

STATES = ("live", "deleted")


def _revision() -> list[Column[str] | Column[int] | Column[float]]:
    """Columns of one revision: what a person drew and wrote, and the values derived from it."""
    return [
        Column("change", BigInteger, nullable=False),
        Column("state", String(16), nullable=False),
        Column("kind", String(16), nullable=False),
        Column("object_type", String(16), nullable=False),
        Column("geometry", LongText, nullable=False),
        Column("class_name", String(100)),
        Column("note", LongText, nullable=False),
        Column("changed_by", String(200), nullable=False),
        Column("changed_utc", String(32), nullable=False),
        Column("author", String(200), nullable=False),
        Column("made_utc", String(32), nullable=False),
        Column("left_px0", Float, nullable=False),
        Column("top_px0", Float, nullable=False),
        Column("right_px0", Float, nullable=False),
        Column("bottom_px0", Float, nullable=False),
        Column("area_px0", Float, nullable=False),
        Column("vertices", Integer, nullable=False),
        Column("parent_id", String(36)),
        Column("view", String(1000)),
    ]


annotated_slide = Table(
    "annotated_slide",
    metadata,
    Column("slide_id", String(64), primary_key=True),
    Column("change", BigInteger, nullable=False),
    Column("live", Integer, nullable=False),
    Column("vertices", BigInteger, nullable=False),
)
"""One row per slide with annotations: `change` counts the transactions that changed any of them."""

annotation = Table(
    "annotation",
    metadata,
    Column("slide_id", String(64), primary_key=True),
    Column("annotation_id", String(36), primary_key=True),
    Column("revision", Integer, nullable=False),
    *_revision(),
    ForeignKeyConstraint(["slide_id"], ["annotated_slide.slide_id"]),
    CheckConstraint("state IN ('live', 'deleted')", name="state"),
    Index(None, "slide_id", "change"),
    Index(None, "slide_id", "parent_id"),
    Index(None, "author", "parent_id", "changed_by"),
)
"""`geometry` is GeoJSON in level-0 pixels; `change` is the slide's counter when the annotation last changed.
`parent_id` is a mark's count, or what a reply answers; `view` is a bookmark's, as parameters of a link."""

annotation_revision = Table(
    "annotation_revision",
    metadata,
    Column("slide_id", String(64), primary_key=True),
    Column("annotation_id", String(36), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    *_revision(),
    ForeignKeyConstraint(["slide_id", "annotation_id"], ["annotation.slide_id", "annotation.annotation_id"]),
)
"""An annotation's whole row as it was before a change, so that the log's hash of it still holds; append-only."""

annotation_class = Table(
    "annotation_class",
    metadata,
    Column("class_name", String(100), primary_key=True),
    Column("ordinal", Integer, nullable=False),
)
"""Classes in the order of their first use in the project, which gives each its colour, the same on every slide."""


HOTSPOT_STATES = ("seen", "accepted", "rejected")
VERDICTS = ("agree", "disagree", "cannot_judge")


def _one_of(column: str, words: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


hotspot_review = Table(
    "hotspot_review",
    metadata,
    Column("study_id", String(64), primary_key=True),
    Column("reading", String(96), primary_key=True),
    Column("slide_id", String(64), primary_key=True),
    Column("person", String(200), primary_key=True),
    Column("model_id", String(100), primary_key=True),
    Column("predictions_sha256", String(64), primary_key=True),
    Column("class_name", String(200), primary_key=True),
    Column("x_px0", BigInteger, primary_key=True, autoincrement=False),
    Column("y_px0", BigInteger, primary_key=True, autoincrement=False),
    Column("state", String(16), nullable=False),
    Column("utc", String(32), nullable=False),
    _one_of("state", HOTSPOT_STATES),
    Index(None, "slide_id"),
)
"""One person's judgement of one hotspot of one list; another list (`predictions_sha256`) is judged separately."""

coverage = Table(
    "coverage",
    metadata,
    Column("study_id", String(64), primary_key=True),
    Column("reading", String(96), primary_key=True),
    Column("slide_id", String(64), primary_key=True),
    Column("person", String(200), primary_key=True),
    Column("cell_um", Float, nullable=False),
    Column("columns", Integer, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("finest", LargeBinary, nullable=False),
    Column("ticks", LargeBinary, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("utc", String(32), nullable=False),
    Index(None, "slide_id"),
)
"""One person's coverage of one slide (`coverage.py` describes the two grids; they are stored as zlib streams,
`finest` after a line that states the rule by which its cells count).
`seconds` is how long the slide was open in a visible tab."""

review = Table(
    "review",
    metadata,
    Column("review_id", String(32), primary_key=True),
    Column("slide_id", String(64), nullable=False),
    Column("study_id", String(64), nullable=False),
    Column("person", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    Column("model_id", String(100)),
    Column("class_name", String(200)),
    Column("predictions_sha256", String(64)),
    Column("verdict", String(16), nullable=False),
    Column("label", String(200), nullable=False),
    Column("comment", LongText, nullable=False),
    Column("utc", String(32), nullable=False),
    _one_of("verdict", VERDICTS),
    Index(None, "slide_id"),
)
"""Reviews of a slide outside all studies, and of a model's prediction for it; append-only. `name` is the
name the reviewer signed with."""


REGISTRATION_STATES, REGISTRATION_METHODS = ("saved", "removed"), ("features", "points")

registration = Table(
    "registration",
    metadata,
    Column("moving_id", String(64), primary_key=True),
    Column("fixed_id", String(64), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("state", String(16), nullable=False),
    Column("method", String(16), nullable=False),
    *(Column(f"m{row}{column}", Float, nullable=False) for row in (1, 2) for column in (1, 2, 3)),
    Column("error_um", Float),
    Column("places", Integer, nullable=False),
    Column("matches", Integer, nullable=False),
    Column("share_near", Float),
    Column("dice", Float),
    Column("moving_pixels", String(64), nullable=False),
    Column("fixed_pixels", String(64), nullable=False),
    Column("person", String(200), nullable=False),
    Column("utc", String(32), nullable=False),
    _one_of("state", REGISTRATION_STATES),
    _one_of("method", REGISTRATION_METHODS),
    Index(None, "fixed_id"),
)
"""Registrations of two slides; append-only, and a pair's last revision counts. `moving_id` sorts before `fixed_id`, so
that a pair is one key; m11 to m23 is the affine map of its level-0 pixels to those of `fixed_id`."""
