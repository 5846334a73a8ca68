"""The reports that the log of a study records: where each was written, and the SHA-256 of its files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from pipeline.ledger.rows import REPORT_MADE
from pipeline.ledger.tables import audit
from training.foundation.reading import parse_json


class Made(NamedTuple):
    """An entry on a report: its number and its details."""

    seq: int
    where: str
    hashes: dict[str, str]
    tile_sets: dict[str, str]


def made_reports(connection: Connection, study_id: str) -> Iterator[Made]:
    """The entries on reports of a study, oldest first."""
    chosen = select(audit.c.seq, audit.c.details).where(audit.c.study_id == study_id, audit.c.action == REPORT_MADE)
    for seq, text in connection.execute(chosen.order_by(audit.c.seq)).all():
        try:
            raw: dict[str, Any] = parse_json(text or "")
            yield Made(seq, str(raw["folder"]), _texts(raw["sha256"]), _texts(raw["tile_sets"]))
        except (ValueError, LookupError, TypeError, AttributeError):
            continue  # a changed entry, which its hash shows


def first_made(connection: Connection, study_id: str) -> dict[str, int]:
    """The number of the first entry that records a file of a report, by the file's SHA-256."""
    first: dict[str, int] = {}
    for made in made_reports(connection, study_id):
        for sha256 in made.hashes.values():
            first.setdefault(sha256, made.seq)
    return first


def _texts(raw: dict[object, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in raw.items()}
