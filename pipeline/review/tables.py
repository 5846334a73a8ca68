"""Tables of annotations, in the ledger's database. What is written to them is decided in `saving.py`."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Float, ForeignKeyConstraint, Index, Integer, String, Table
from sqlalchemy import Text as LongText

from pipeline.study import metadata

STATES = ("live", "deleted")


def _content() -> list[Column[str] | Column[int]]:
    """What a person drew and said, in one revision."""
    return [
        Column("state", String(16), nullable=False),
        Column("kind", String(16), nullable=False),
        Column("object_type", String(16), nullable=False),
        Column("geometry", LongText, nullable=False),
        Column("class_name", String(100)),
        Column("note", LongText, nullable=False),
        Column("changed_by", String(200), nullable=False),
        Column("changed_utc", String(32), nullable=False),
    ]


annotated_slide = Table(
    "annotated_slide",
    metadata,
    Column("slide_id", String(64), primary_key=True),
    Column("change", BigInteger, nullable=False),
    Column("live", Integer, nullable=False),
    Column("vertices", BigInteger, nullable=False),
)
"""One row for each slide with annotations: `change` counts up with each transaction that changed some of them."""

annotation = Table(
    "annotation",
    metadata,
    Column("slide_id", String(64), primary_key=True),
    Column("annotation_id", String(36), primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("change", BigInteger, nullable=False),
    *_content(),
    Column("author", String(200), nullable=False),
    Column("made_utc", String(32), nullable=False),
    Column("left_px0", Float, nullable=False),
    Column("top_px0", Float, nullable=False),
    Column("right_px0", Float, nullable=False),
    Column("bottom_px0", Float, nullable=False),
    Column("area_px0", Float, nullable=False),
    Column("vertices", Integer, nullable=False),
    ForeignKeyConstraint(["slide_id"], ["annotated_slide.slide_id"]),
    CheckConstraint("state IN ('live', 'deleted')", name="state"),
    Index(None, "slide_id", "change"),
)
"""`geometry` is GeoJSON in level-0 pixels; `change` that of the slide at which the annotation changed last."""

annotation_revision = Table(
    "annotation_revision",
    metadata,
    Column("slide_id", String(64), primary_key=True),
    Column("annotation_id", String(36), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    *_content(),
    ForeignKeyConstraint(["slide_id", "annotation_id"], ["annotation.slide_id", "annotation.annotation_id"]),
)
"""What an annotation said before it was changed; rows are only added."""

annotation_class = Table(
    "annotation_class",
    metadata,
    Column("class_name", String(100), primary_key=True),
    Column("ordinal", Integer, nullable=False),
)
"""Classes in the order in which the project first used them: it gives each its colour, on every slide the same."""
