"""A person viewing a slide, the purpose, and the log that records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table

from pipeline.ledger.chain import Change, append, digest
from pipeline.ledger.project_log import append_to_project
from pipeline.ledger.rows import PROJECT_LOG, as_read, row_sha256, slide_subject


@dataclass(frozen=True)
class ViewContext:
    """One person viewing one slide.

    Attributes:
        person: a reader's pseudonym in a reading, otherwise the signed-in person.
        actor: the name in the log.
        study_id: the study whose log records it; the project's log outside studies.
        reading: "reader/session/position"; "" outside studies.
    """

    slide_id: str
    person: str
    actor: str
    study_id: str = PROJECT_LOG
    reading: str = ""

    @property
    def key(self) -> dict[str, str]:
        """Columns that every table of reviews has."""
        return {
            "study_id": self.study_id,
            "reading": self.reading,
            "slide_id": self.slide_id,
            "person": self.person,
        }


def change_of(context: ViewContext, action: str, table: Table, row: Mapping[str, Any], **extra: Any) -> Change:
    """The entry for a row as it is now. `verify.py` compares the row with its hash."""
    reading = {"reading": context.reading} if context.reading else {}
    details = details_of(table, row) | reading | extra
    return Change(context.actor, action, slide_subject(context.slide_id), details=details)


def details_of(table: Table, row: Mapping[str, Any]) -> dict[str, str]:
    """Details of a log entry for a row as it is now."""
    return {"table": table.name, "key_sha256": key_sha256(table, row), "row_sha256": row_sha256(table, row)}


def key_sha256(table: Table, row: Mapping[str, Any]) -> str:
    """SHA-256 of the values that identify a row in its table. Raises DamagedStoreError: as `row_sha256`."""
    return digest([as_read(column)(row[column.name]) for column in table.primary_key])


def log(connection: Connection, context: ViewContext, changes: Sequence[Change]) -> None:
    """Add entries in the transaction that makes the changes."""
    if context.study_id == PROJECT_LOG:
        append_to_project(connection, changes)
    else:
        append(connection, context.study_id, changes)
