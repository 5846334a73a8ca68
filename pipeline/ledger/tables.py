"""The ledger's tables. Their rows are written by `ledger.py`, `leases.py` and `chain.py`.

A task is one slide and one stage, and holds no pixels. Times are UTC, for people to read; nothing is decided by them
alone, since clocks step.
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
    MetaData,
    String,
    Table,
    Text,
)

SLIDE_ENDS = ("done", "no_tissue", "qc_failed", "refused", "unreadable", "failed", "excluded")
"""Terminal states of a slide; each slide ends in exactly one."""
SLIDE_STATES = ("pending", *SLIDE_ENDS)
TASK_STATES = ("blocked", "ready", "leased", "done", "ended")
"""Blocked: an earlier stage is not done. Ended: without its output, since the slide ended."""
STUDY_STATES = ("running", "paused")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _one_of(column: str, words: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


study = Table(
    "study",
    metadata,
    Column("study_id", String(64), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("version", Integer, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("protocol_sha256", String(64), nullable=False),
    Column("manifest_sha256", String(64), nullable=False),
    Column("audit_seq", BigInteger, nullable=False),
    Column("audit_hash", String(64), nullable=False),
    _one_of("state", STUDY_STATES),
)
"""`protocol` is the frozen protocol as canonical JSON; `audit_*` the head of the study's log."""

slide = Table(
    "slide",
    metadata,
    Column("study_id", String(64), primary_key=True),
    Column("slide_id", String(64), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("source_sha256", String(64)),
    Column("site", String(200)),
    Column("scanner", String(200)),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("state", String(16), nullable=False),
    Column("code", String(64)),
    Column("message", Text),
    Column("ended_utc", String(32)),
    ForeignKeyConstraint(["study_id"], ["study.study_id"]),
    _one_of("state", SLIDE_STATES),
    Index(None, "study_id", "state", "ordinal"),
    Index(None, "study_id", "ordinal"),
)

task = Table(
    "task",
    metadata,
    Column("study_id", String(64), primary_key=True),
    Column("slide_id", String(64), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("stage", String(96), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("token", BigInteger, nullable=False, server_default="0"),
    Column("beat", BigInteger, nullable=False, server_default="0"),
    Column("owner", String(200)),
    Column("not_before", Float),
    Column("beat_utc", String(32)),
    Column("started_utc", String(32)),
    Column("ended_utc", String(32)),
    Column("seconds", Float),
    Column("code", String(64)),
    Column("message", Text),
    Column("output_sha256", String(64)),
    Column("measures", Text),
    ForeignKeyConstraint(["study_id", "slide_id"], ["slide.study_id", "slide.slide_id"]),
    _one_of("state", TASK_STATES),
)
"""`token` counts the owners that a task has had, `beat` the heartbeats of its present owner. `not_before` is when a
task may be tried again, in seconds since 1970. `measures` is canonical JSON (`measures.py`)."""
Index("ix_task_next", task.c.study_id, task.c.state, task.c.priority.desc(), task.c.position.desc(), task.c.ordinal)
"""The order in which tasks are taken: late stages first, so that slides finish and stages overlap."""

audit = Table(
    "audit",
    metadata,
    Column("study_id", String(64), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("utc", String(32), nullable=False),
    Column("actor", String(200), nullable=False),
    Column("action", String(64), nullable=False),
    Column("salt", String(32)),
    Column("subject", String(200)),
    Column("why", Text),
    Column("before", String(64)),
    Column("after", String(64)),
    Column("details", Text),
    Column("content", String(64), nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    ForeignKeyConstraint(["study_id"], ["study.study_id"]),
    Index(None, "study_id", "subject", "seq"),
)
"""`before` and `after` are the SHA-256 of the changed row; `details` is canonical JSON. `content` is the hash of the
columns from `salt` to `details`, all of which are empty in an erased entry."""

READING_STATES = ("open", "started", "signed", "erased")

reading = Table(
    "reading",
    metadata,
    Column("study_id", String(64), primary_key=True),
    Column("reader", String(64), primary_key=True),
    Column("session", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("slide_id", String(64), nullable=False),
    Column("arm", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("started_utc", String(32)),
    Column("signed_utc", String(32)),
    Column("seconds", Float),
    ForeignKeyConstraint(["study_id", "slide_id"], ["slide.study_id", "slide.slide_id"]),
    _one_of("state", READING_STATES),
    Index(None, "study_id", "slide_id"),
)
"""One reading of one slide by one reader, under one condition (`arm`). `seconds` is the time the slide was open."""

answer = Table(
    "answer",
    metadata,
    Column("study_id", String(64), primary_key=True),
    Column("reader", String(64), primary_key=True),
    Column("session", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("question", String(64), nullable=False),
    Column("value", Text, nullable=False),
    Column("utc", String(32), nullable=False),
    ForeignKeyConstraint(
        ["study_id", "reader", "session", "position"],
        ["reading.study_id", "reading.reader", "reading.session", "reading.position"],
    ),
)
"""Every answer that was given, as JSON; the last one to a question counts, the earlier ones are kept."""

SESSION_KINDS = ("session", "link", "exchange", "provider")
"""A signed-in browser; a single-use sign-in link; a single-use exchange for a sign-in elsewhere; and a used sign-in
elsewhere."""

session = Table(
    "session",
    metadata,
    Column("token_sha256", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("name", String(64)),
    Column("stamp", String(64)),
    Column("made", Float, nullable=False),
    Column("seen", Float, nullable=False),
    Column("ends", Float, nullable=False),
    Column("revoked", Float),
    _one_of("kind", SESSION_KINDS),
    Index(None, "ends"),
)
"""Sessions of the web app, by the hash of their token, which is stored nowhere. `name` is the owner's; empty where
nobody has one. `stamp` changes with the account's password. Times are in seconds since 1970; `seen` is exact to a
minute."""

attempt = Table(
    "attempt",
    metadata,
    Column("subject", String(120), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("since", Float, nullable=False),
)
"""Number of sign-in attempts, by name and by address, since a time (seconds since 1970)."""
