"""Tables of what people said of slides, in the ledger's database (docs/store.md). Their entries stand in the log of the
study, or of the project where nobody read for a study."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Float, Index, Integer, LargeBinary, String, Table, Text

from pipeline.study.tables import metadata

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
"""What one person thinks of one hotspot of one list; another list (`predictions_sha256`) is judged anew."""

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
"""What one person has looked at of one slide (`coverage.py` says what the two grids hold; they are zlib streams).
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
    Column("comment", Text, nullable=False),
    Column("utc", String(32), nullable=False),
    _one_of("verdict", VERDICTS),
    Index(None, "slide_id"),
)
"""What somebody said of a slide outside all studies, and of a model's prediction for it; only added to. `name` is as
they signed it."""
