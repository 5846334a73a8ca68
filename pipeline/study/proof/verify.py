"""Proof that a study's log and its rows are as written: every entry, their order, and the end.

The database itself can show this: an entry that was edited, deleted, inserted or moved breaks the chain; a log whose
tail was cut off does not end where the study's head says; a row that was changed behind the log's back differs from its
last entry. A log that was rewritten as a whole, with its head, is self-consistent: only anchors, which are signed and
kept outside the database, reveal it (`anchors.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Table, select

from pipeline.errors import DamagedStoreError
from pipeline.ledger.chain import ERASABLE, FIRST, HASHED, content_of, hash_of
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import found
from pipeline.ledger.rows import (
    AMENDED,
    ANSWER_GIVEN,
    ENTRIES_ERASED,
    SLIDE_ENTERED,
    STUDY_SUBJECT,
    TASKS_ADDED,
    answer_subject,
    reading_subject,
    slide_subject,
    task_subject,
)
from pipeline.ledger.tables import answer, audit, reading, slide, study, task
from pipeline.review.verify import change_of_row, verify_reviews
from pipeline.study.proof.actions import PAUSED, RUNNING, may_be_erased, misuse_of
from training.foundation.reading import parse_json

MAX_FINDINGS = 100
_AT_ONCE = 10_000
_KINDS = {"seq": int}
"""Kinds of an entry's columns that are not text; SQLite does not enforce any."""


@dataclass(frozen=True)
class Verified:
    """Result of a verification; an empty `findings` means that nothing is wrong."""

    entries: int
    erased: int
    """Entries whose content was erased on request, according to the log."""
    head: str
    findings: tuple[str, ...]

    def with_findings(self, *more: str) -> Verified:
        """The same with further findings."""
        return replace(self, findings=(*self.findings, *more))


def verify_ledger(database: Database, study_id: str, anchors: Mapping[int, str] | None = None) -> Verified:
    """Verify a log from its first entry to its last (`verify_log`), and people's findings on slides against it: the
    whole check, which commands, pages, reports and signatures rely on.

    Raises:
        BadManifestError: no such study.
    """
    verified = verify_log(database, study_id, anchors)
    return verified.with_findings(*verify_reviews(database, study_id))


def verify_log(database: Database, study_id: str, anchors: Mapping[int, str] | None = None) -> Verified:
    """Check a study's log from its first entry to its last, and its rows against it.

    Args:
        anchors: hashes of some entries by number, from signed anchors.

    Raises:
        BadManifestError: no such study.
    """
    with database.read() as connection:
        row = vars(found(connection, study_id))
        log = _Log(anchors or {})
        for entry in _entries(connection, study_id):
            log.add(entry)
        head = select(study.c.audit_seq, study.c.audit_hash).where(study.c.study_id == study_id)
        log.end(*connection.execute(head).one())
        log.findings += _changed_rows(connection, study_id, log.hashes)
        log.findings += _changed_with_state(row, log.study_hashes)
    return Verified(log.seq, log.erased, log.previous, tuple(log.findings[:MAX_FINDINGS]))


def verified_head(database: Database, study_id: str) -> tuple[int, str]:
    """Number and hash of a log's last entry, to be signed.

    Raises:
        DamagedStoreError: the log does not verify. BadManifestError: no such study.
    """
    verified = check_log(database, study_id, "Nothing is signed")
    return verified.entries, verified.head


def check_log(database: Database, study_id: str, otherwise: str) -> Verified:
    """Verify a log.

    Args:
        otherwise: consequence for the message: "Nothing is signed".

    Raises:
        DamagedStoreError: it does not verify. BadManifestError: no such study.
    """
    verified = verify_ledger(database, study_id)
    if verified.findings:
        raise DamagedStoreError(f"study {study_id}: its log does not verify: {verified.findings[0]}. {otherwise}.")
    return verified


class _Log:
    """The entries so far."""

    def __init__(self, anchors: Mapping[int, str]) -> None:
        self.seq, self.previous = 0, FIRST
        self.findings: list[str] = []
        self.hashes: dict[str, str] = {}
        self.study_hashes: dict[str, str] = {}
        """Of the study's row since the last amendment, by the action that brought each state about."""
        self._state = RUNNING
        self.erased = 0
        self._emptied: list[int] = []
        self._named: list[tuple[int, int]] = []
        self._anchors = anchors

    def add(self, entry: Mapping[str, Any]) -> None:
        seq = entry["seq"]
        if strange := [name for name in entry if not isinstance(entry[name], _KINDS.get(name, str | None))]:
            self._find(f"entry {seq!s:.20} was changed: {', '.join(strange)} is not of its column's kind")
            return
        if seq <= self.seq:
            self._find(f"entry {seq} was inserted before the first")
        elif seq != self.seq + 1:
            self._find(f"entries {self.seq + 1} to {seq - 1} are missing")
        elif entry["previous"] != self.previous:
            self._find(f"entry {seq} does not follow the entry before it: one of them was replaced or moved")
        if hash_of(entry) != entry["hash"]:
            self._find(f"entry {seq} ({entry['action']}) was changed: its hash differs")
        if self._anchors.get(seq, entry["hash"]) != entry["hash"]:
            self._find(f"entry {seq} is not the one that was anchored: the log was rewritten up to there or before")
        if is_erased(entry):
            if not may_be_erased(entry["action"]):
                self._find(f"entry {seq} ({entry['action']}) was emptied, which an erasure never does")
            self.erased += 1
            self._emptied.append(seq)
        else:
            if content_of(entry) != entry["content"]:
                self._find(f"entry {seq} ({entry['action']}, {entry['subject']}) was changed: its content differs")
            self._follow(entry)
        self.seq, self.previous = seq, entry["hash"]

    def _follow(self, entry: Mapping[str, Any]) -> None:
        """Check the row's hash before this entry, and keep the hashes after it."""
        if misuse := misuse_of(entry):
            self._find(f"entry {entry['seq']} ({entry['action']}, {entry['subject']!s:.80}) {misuse}")
            return
        if entry["after"] is not None:
            if entry["before"] != self.hashes.get(entry["subject"]):
                self._find(f"entry {entry['seq']} ({entry['subject']}) begins from a state that no earlier entry left")
            self.hashes[entry["subject"]] = entry["after"]
            if entry["subject"] == STUDY_SUBJECT:
                self._follow_study(entry)
        if entry["action"] in (SLIDE_ENTERED, TASKS_ADDED):
            slide_id = str(entry["subject"]).removeprefix(slide_subject(""))
            for stage, _, sha256 in _details(entry, "tasks", (str, str, str)):
                self.hashes[task_subject(slide_id, stage)] = sha256
        if entry["action"] == ENTRIES_ERASED:
            self._named += _details(entry, "entries", (int, int))
        if entry["action"] == ANSWER_GIVEN:
            for seq, _, sha256 in _details(entry, "answer", (int, str, str)):
                self.hashes[answer_subject(entry["subject"], seq)] = sha256

    def _follow_study(self, entry: Mapping[str, Any]) -> None:
        """Keep the hashes of the study's row in both of its states: pausing and resuming change nothing else of it."""
        if entry["action"] in (PAUSED, RUNNING):
            self._state = entry["action"]
        else:
            self._state = self._state if entry["action"] == AMENDED else RUNNING
            self.study_hashes = {}
        if self.study_hashes.setdefault(self._state, entry["after"]) != entry["after"]:
            self._find(f"entry {entry['seq']} ({entry['action']}) changed more than the study's state")

    def end(self, head_seq: int, head_hash: str) -> None:
        for seq in _outside(self._emptied, self._named):
            self._find(f"entry {seq} was emptied, but no entry says that it was erased")
        if (head_seq, head_hash) != (self.seq, self.previous):
            self._find(
                f"the log ends with entry {self.seq}, but the study says {head_seq}: its tail was cut or replaced"
            )
        if self._anchors and max(self._anchors) > self.seq:
            self._find(f"entry {max(self._anchors)} was anchored, but the log ends with {self.seq}: its tail was cut")

    def _find(self, what: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(what)


def is_erased(entry: Mapping[str, Any]) -> bool:
    """Whether all erasable columns of an entry are empty."""
    return all(entry[name] is None for name in ERASABLE)


def _entries(connection: Connection, study_id: str) -> Iterator[Mapping[str, Any]]:
    names = (*HASHED, *ERASABLE, "hash")
    columns = [audit.c[name] for name in names]
    at = -(2**63) + 1
    while True:  # in pages by key: a million entries stay out of memory on either database
        page = select(*columns).where(audit.c.study_id == study_id, audit.c.seq > at).order_by(audit.c.seq)
        rows = connection.execute(page.limit(_AT_ONCE)).all()
        if not rows:
            return
        for row in rows:
            yield dict(zip(names, row, strict=True))
        at = rows[-1][1]


def _details(entry: Mapping[str, Any], name: str, kinds: tuple[type, ...]) -> list[Any]:
    """A list of tuples in an entry's details; empty for a changed entry, which its hash shows."""
    try:
        listed = parse_json(entry["details"] or "")[name]
    except (ValueError, LookupError, TypeError):
        return []
    is_list = isinstance(listed, list) and all(isinstance(item, list) and _are(item, kinds) for item in listed)
    return [tuple(item) for item in listed] if is_list else []


def _are(values: list[Any], kinds: tuple[type, ...]) -> bool:
    return len(values) == len(kinds) and all(map(isinstance, values, kinds))


def _outside(numbers: Sequence[int], intervals: Sequence[tuple[int, int]]) -> list[int]:
    """Ascending numbers that are in none of the intervals, ends included."""
    outside, waiting, end = [], sorted(intervals, reverse=True), 0
    for number in numbers:
        while waiting and waiting[-1][0] <= number:
            end = max(end, waiting.pop()[1])
        if number > end:
            outside.append(number)
    return outside


def _changed_rows(connection: Connection, study_id: str, hashes: Mapping[str, str]) -> list[str]:
    """Findings on rows that differ from their last entry, or that have none."""
    findings = []
    seen = set()
    for subject, table, row in _rows(connection, study_id):
        seen.add(subject)
        if subject not in hashes:
            findings.append(f"{subject}: is in the ledger, but no entry of the log created it")
        elif problem := change_of_row(table, row, hashes[subject]):
            findings.append(f"{subject}: {problem}")
    return findings + [f"{subject}: was deleted from the ledger" for subject in hashes if subject not in seen]


def _changed_with_state(row: Mapping[str, Any], hashes: Mapping[str, str]) -> list[str]:
    """A finding if the study's row is not what it was in its other state; `_changed_rows` checks the present one."""
    state, action = ("running", RUNNING) if row["state"] == "paused" else ("paused", PAUSED)
    if action not in hashes or change_of_row(study, {**row, "state": state}, hashes[action]) is None:
        return []
    return [f"{STUDY_SUBJECT}: was changed since it was {state}, and no entry says more than that its state changed"]


def _rows(connection: Connection, study_id: str) -> Iterator[tuple[str, Table, Mapping[str, Any]]]:
    """All rows of a study, each with its subject in the log."""
    for table, subject_of in _SUBJECTS.items():
        chosen = select(table).where(table.c.study_id == study_id)
        for row in connection.execution_options(yield_per=_AT_ONCE).execute(chosen).mappings():
            values = dict(row)
            yield subject_of(values), table, values


def _subject_of_reading(row: Mapping[str, Any]) -> str:
    return reading_subject(row["reader"], row["session"], row["position"])


_SUBJECTS: Mapping[Table, Callable[[Mapping[str, Any]], str]] = {
    study: lambda row: STUDY_SUBJECT,
    slide: lambda row: slide_subject(row["slide_id"]),
    task: lambda row: task_subject(row["slide_id"], row["stage"]),
    reading: _subject_of_reading,
    answer: lambda row: answer_subject(_subject_of_reading(row), row["seq"]),
}
