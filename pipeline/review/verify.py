"""Whether what people said of slides is what the log says that they said: the other half of `pipeline.study.verify`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Table, select

from pipeline.review.annotation import HASHED, IMPORTED
from pipeline.review.looking import row_sha256
from pipeline.review.tables import annotation, coverage, hotspot_review, review
from pipeline.study.chain import digest
from pipeline.study.database import Database
from pipeline.study.rows import PROJECT_LOG, hash_row, slide_subject
from pipeline.study.tables import audit
from pipeline.study.verify import Verified, verify_log

TABLES = {table.name: table for table in (hotspot_review, coverage, review)}
MAX_FINDINGS = 100
_AT_ONCE = 5_000


def verify_ledger(database: Database, study_id: str, anchors: Mapping[int, str] | None = None) -> Verified:
    """A log from its first entry to its last (`verify_log`), and what people said of slides against it.

    Raises:
        BadManifestError: no such study.
    """
    verified = verify_log(database, study_id, anchors)
    return replace(verified, findings=(*verified.findings, *verify_reviews(database, study_id)))


def verify_reviews(database: Database, study_id: str) -> list[str]:
    """What was changed, added or deleted behind the log's back; nothing is, where the list is empty.

    The log itself is `verify_log`'s: this believes what it says.

    Args:
        study_id: whose log it is; `PROJECT_LOG` for what was said outside studies.
    """
    with database.read() as connection:
        logged = dict(_logged(connection, study_id))
        findings: list[str] = []
        for name, table in TABLES.items():
            findings += _changed(connection, study_id, name, table, logged)
        if study_id == PROJECT_LOG:
            findings += _annotations(connection)
    findings += [f"{name} {key[:12]}…: was deleted from the ledger" for name, key in logged]
    return findings[:MAX_FINDINGS]


def _logged(connection: Connection, study_id: str) -> Iterator[tuple[tuple[str, str], str]]:
    """(table, hash of the key) and the row's hash, of every entry about these tables, oldest first."""
    chosen = select(audit.c.details).where(audit.c.study_id == study_id, audit.c.details.like('%"table":%'))
    rows = connection.execution_options(yield_per=_AT_ONCE).execute(chosen.order_by(audit.c.seq))
    for (text,) in rows:
        try:
            said = json.loads(text)
            yield (str(said["table"]), str(said["key_sha256"])), str(said["row_sha256"])
        except (ValueError, KeyError, TypeError):
            continue  # an entry that was changed, which its hash shows


def _changed(
    connection: Connection, study_id: str, name: str, table: Table, logged: dict[tuple[str, str], str]
) -> Iterator[str]:
    """Findings of one table; what is found as the log says is taken out of `logged`."""
    names = [column.name for column in table.primary_key]
    rows = connection.execution_options(yield_per=_AT_ONCE).execute(select(table).where(table.c.study_id == study_id))
    for row in rows.mappings():
        values: dict[str, Any] = dict(row)
        where = f"{name} of {values['person']:.60} at slide {values['slide_id']:.64}"
        said = logged.pop((name, digest([values[each] for each in names])), None)
        if said is None:
            yield f"{where}: stands in the ledger, and no entry says how it came there"
        elif said != row_sha256(values):
            yield f"{where}: was changed without an entry in the log"


def _annotations(connection: Connection) -> Iterator[str]:
    """Findings of annotations that were drawn or changed one by one; many that came in a file have one entry together,
    whose hash is of them all, as they were then."""
    logged, imports = _logged_annotations(connection)
    rows = connection.execution_options(yield_per=_AT_ONCE).execute(select(annotation))
    for row in rows.mappings():
        where = f"annotation {row['annotation_id']} on slide {row['slide_id']:.64}"
        subject = slide_subject(row["slide_id"])
        revision, said = logged.pop((subject, row["annotation_id"]), (0, ""))
        if row["revision"] > revision:
            if subject not in imports:
                yield f"{where}: revision {row['revision']} stands in the ledger, and no entry says how it came there"
        elif said != hash_row(dict(row), HASHED):
            yield f"{where}: was changed without an entry in the log"
    yield from (f"annotation {known} on {subject:.80}: was deleted from the ledger" for subject, known in logged)


def _logged_annotations(connection: Connection) -> tuple[dict[tuple[str, str], tuple[int, str]], set[str]]:
    """Of each annotation (subject, id) the last revision and its hash; and subjects with annotations that came in
    files."""
    chosen = select(audit.c.subject, audit.c.action, audit.c.details).where(audit.c.study_id == PROJECT_LOG)
    chosen = chosen.where(audit.c.action.like("annotation%")).order_by(audit.c.seq)
    logged: dict[tuple[str, str], tuple[int, str]] = {}
    imports: set[str] = set()
    for subject, action, text in connection.execution_options(yield_per=_AT_ONCE).execute(chosen):
        if action == IMPORTED:
            imports.add(subject)
            continue
        try:
            said = json.loads(text)
            logged[subject, str(said["annotation"])] = int(said["revision"]), str(said["after"])
        except (ValueError, KeyError, TypeError):
            continue  # an entry that was changed, which its hash shows
    return logged, imports
