"""The log of a study: each entry's hash covers its content and the previous hash, and entries are only ever added.

A change to a row and its entry are one transaction. `before` and `after` are hashes of the row's content, so that a row
changed behind the log's back is detected as well as a changed log (`verify.py`).

What an entry says about a slide can be erased, and the chain still verifies (`erasure.py`): the chain covers that part
by one salted hash; without the salt, nobody can test guessed names and reasons against it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from pipeline.errors import BadManifestError, DamagedStoreError
from pipeline.ledger.tables import audit, study

FIRST = "0" * 64
"""Value of the hash before the first entry."""


@dataclass(frozen=True)
class Change:
    """A change to log: who did what to which row, and why."""

    actor: str
    action: str
    subject: str
    """"study", "slide S-1" or "task S-1/ingest"."""
    why: str = ""
    before: str | None = None
    after: str | None = None
    """SHA-256 of the row before and after the change (`digest`)."""
    details: Mapping[str, Any] = field(default_factory=dict)


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: object) -> str:
    """Canonical JSON: sorted keys, no whitespace."""
    return _ENCODER.encode(value)


def digest(value: object) -> str:
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def utc_now() -> str:
    """The current time, for people to read; entries are ordered by number, since clocks step."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


HASHED = ("study_id", "seq", "utc", "actor", "action", "content", "previous")
"""Columns that an entry's hash covers, in this order."""
ERASABLE = ("salt", "subject", "why", "before", "after", "details")
"""Columns that `content` is the hash of; all of them are empty in an erased entry."""


def hash_of(entry: Mapping[str, Any]) -> str:
    """Hash of a stored entry, from all its other columns."""
    return digest([entry[name] for name in HASHED])


def content_of(entry: Mapping[str, Any]) -> str:
    """Hash of an entry's erasable columns."""
    return digest([entry[name] for name in ERASABLE])


_OF_STUDY = study.c.study_id == bindparam("of_study")
_HEAD = select(study.c.audit_seq, study.c.audit_hash).where(_OF_STUDY).with_for_update()
_NEW_HEAD = update(study).where(_OF_STUDY)
_ENTRY = insert(audit)


def append(connection: Connection, study_id: str, changes: Sequence[Change]) -> None:
    """Add entries in the transaction that makes the changes. Other writers of the study's log wait until it ends.

    Raises:
        BadManifestError: no such study. DamagedStoreError: its log's end was changed.
    """
    if not changes:
        return
    row = connection.execute(_HEAD, {"of_study": study_id}).one_or_none()
    if row is None:
        raise BadManifestError(f"study {study_id}: not in this ledger.")
    seq, previous = row
    if not isinstance(seq, int) or not isinstance(previous, str):  # SQLite does not enforce it
        raise DamagedStoreError(
            f"study {study_id}: the end of its log was changed or damaged, so nothing can be added. Restore the ledger "
            "from a backup."
        )
    entries = []
    for change in changes:
        seq += 1
        entry = {
            "study_id": study_id,
            "seq": seq,
            "utc": utc_now(),
            "actor": change.actor,
            "action": change.action,
            "subject": change.subject,
            "why": change.why,
            "before": change.before,
            "after": change.after,
            "details": canonical(change.details),
            "salt": secrets.token_hex(16),
            "previous": previous,
        }
        entry["content"] = content_of(entry)
        previous = entry["hash"] = hash_of(entry)
        entries.append(entry)
    connection.execute(_ENTRY, entries)
    connection.execute(_NEW_HEAD, {"of_study": study_id, "audit_seq": seq, "audit_hash": previous})
