"""Check of annotations, their earlier revisions and the slides' counters against the project's log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, select

from pipeline.errors import DamagedStoreError
from pipeline.ledger.rows import PROJECT_LOG, row_sha256, slide_subject
from pipeline.ledger.tables import audit
from pipeline.review.annotations.entries import IMPORTED, OF_ONE, digest_of_all
from pipeline.review.rows.tables import annotated_slide, annotation, annotation_revision
from training.foundation.reading import parse_json

_AT_ONCE = 5_000


def changed_annotations(connection: Connection) -> Iterator[str]:
    """Report annotations that were changed, added or deleted without a log entry; the log itself is trusted."""
    logged = _logged(connection)
    stored = _Stored()
    for table in (annotation_revision, annotation):
        for row in _rows(connection, table):
            yield from stored.add(row, logged, is_current=table is annotation)
    yield from logged.missing(stored.of_imports)
    yield from stored.without_annotation()
    yield from _changed_counters(connection, stored.counters)


@dataclass
class _Logged:
    """Hashes of rows as the log has them; those seen in the ledger are removed."""

    single: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """By the slide's subject, annotation and revision."""
    imports: dict[tuple[str, int], str] = field(default_factory=dict)
    """By the slide's subject and counter: one hash for all annotations from a file."""

    def missing(self, of_imports: Mapping[tuple[str, int], list[tuple[str, int, str]]]) -> Iterator[str]:
        """Report rows of the log that are missing or different in the ledger, and rows that no log entry created."""
        for subject, annotation_id, revision in self.single:
            yield f"annotation {annotation_id} on {subject!s:.80}: revision {revision} was deleted from the ledger"
        for (subject, change), sha256 in self.imports.items():
            if digest_of_all(of_imports.get((subject, change), [])) != sha256:
                yield (
                    f"{subject!s:.80}: the annotations imported in its change {change} differ from the log: one was "
                    "changed, added or deleted"
                )
        for (subject, change), rows in of_imports.items():
            if (subject, change) not in self.imports:
                yield from (
                    f"annotation {annotation_id} on {subject!s:.80}: revision {revision} is in the ledger, but no log "
                    "entry created it"
                    for annotation_id, revision, _ in rows
                )


@dataclass
class _Counters:
    change: int = 0
    live: int = 0
    vertices: int = 0


@dataclass
class _Stored:
    """State gathered from the rows seen so far."""

    of_imports: dict[tuple[str, int], list[tuple[str, int, str]]] = field(default_factory=lambda: defaultdict(list))
    counters: dict[str, _Counters] = field(default_factory=lambda: defaultdict(_Counters))
    _earlier: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    """Earlier revisions of annotations whose current row has not been seen yet."""

    def add(self, row: Mapping[str, Any], logged: _Logged, *, is_current: bool) -> Iterator[str]:
        slide_id, annotation_id, revision = row["slide_id"], row["annotation_id"], row["revision"]
        subject = slide_subject(slide_id)
        try:
            sha256 = row_sha256(annotation, row)
        except DamagedStoreError as error:
            yield f"annotation {annotation_id} on {subject!s:.80}: was changed without an entry in the log: {error}"
            return
        logged_sha256 = logged.single.pop((subject, annotation_id, revision), None)
        if logged_sha256 is None:
            self.of_imports[subject, row["change"]].append((annotation_id, revision, sha256))
        elif logged_sha256 != sha256:
            where = f"annotation {annotation_id} on {subject!s:.80}"
            yield f"{where}: revision {revision} was changed without an entry in the log"
        counters = self.counters[slide_id]
        counters.change = max(counters.change, row["change"])
        if not is_current:
            self._earlier[slide_id, annotation_id].append(revision)
            return
        if row["state"] == "live":
            counters.live += 1
            counters.vertices += row["vertices"]
        earlier = self._earlier.pop((slide_id, annotation_id), [])
        if sorted(earlier) != list(range(1, revision)):
            yield f"annotation {annotation_id} on {subject!s:.80}: its current row is not its last revision"

    def without_annotation(self) -> Iterator[str]:
        for slide_id, annotation_id in self._earlier:
            yield (
                f"annotation {annotation_id} on slide {slide_id!s:.64}: was deleted from the ledger, but not its "
                "revisions"
            )


def _changed_counters(connection: Connection, counters: Mapping[str, _Counters]) -> Iterator[str]:
    """Compare the slides' counters with those computed from the annotations."""
    unseen = set(counters)
    for row in _rows(connection, annotated_slide):
        unseen.discard(row["slide_id"])
        expected = counters.get(row["slide_id"])
        if expected is None:
            yield f"slide {row['slide_id']!s:.64}: has annotation counters, but no annotation was ever drawn"
        elif (expected.change, expected.live, expected.vertices) != (row["change"], row["live"], row["vertices"]):
            yield f"slide {row['slide_id']!s:.64}: its annotation counters were changed without an entry in the log"
    yield from (f"slide {slide_id!s:.64}: its annotation counters were deleted" for slide_id in unseen)


def _logged(connection: Connection) -> _Logged:
    chosen = select(audit.c.subject, audit.c.action, audit.c.details).where(audit.c.study_id == PROJECT_LOG)
    chosen = chosen.where(audit.c.action.in_((IMPORTED, *OF_ONE))).order_by(audit.c.seq)
    logged = _Logged()
    for subject, action, text in connection.execution_options(yield_per=_AT_ONCE).execute(chosen):
        try:
            details = parse_json(text or "")
            if action == IMPORTED:
                logged.imports[subject, int(details["change"])] = str(details["after"])
            else:
                logged.single[subject, str(details["annotation"]), int(details["revision"])] = str(details["after"])
        except (ValueError, KeyError, TypeError):
            continue  # a changed entry, which its hash reveals
    return logged


def _rows(connection: Connection, table: Table) -> Iterator[Mapping[str, Any]]:
    for row in connection.execution_options(yield_per=_AT_ONCE).execute(select(table)).mappings():
        yield dict(row)
