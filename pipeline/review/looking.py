"""Who looks at which slide, and for what; and the log in which that stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table

from pipeline.study.chain import Change, append, digest
from pipeline.study.project_log import append_to_project
from pipeline.study.rows import PROJECT_LOG, slide_subject


@dataclass(frozen=True)
class Looking:
    """One person at one slide.

    Attributes:
        person: a reader's pseudonym in a reading, else who is signed in.
        actor: whom the log names.
        study_id: whose log it stands in; the project's own outside studies.
        reading: "reader/session/position"; "" where nobody reads for a study.
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


def change_of(looking: Looking, action: str, table: Table, row: Mapping[str, Any], **said: Any) -> Change:
    """The entry for a row as it is now. `verify.py` holds the row against its hash."""
    names = [column.name for column in table.primary_key]
    details = {"table": table.name, "key_sha256": digest([row[name] for name in names]), "row_sha256": row_sha256(row)}
    reading = {"reading": looking.reading} if looking.reading else {}
    return Change(looking.actor, action, slide_subject(looking.slide_id), details=details | reading | said)


def row_sha256(row: Mapping[str, Any]) -> str:
    """SHA-256 of what a row says, bytes as hexadecimal."""
    return digest([[name, _plain(row[name])] for name in sorted(row)])


def log(connection: Connection, looking: Looking, changes: Sequence[Change]) -> None:
    """Add entries in the transaction that makes the changes."""
    if looking.study_id == PROJECT_LOG:
        append_to_project(connection, changes)
    else:
        append(connection, looking.study_id, changes)


def _plain(value: object) -> object:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value
