"""Studies, slides, tasks, and the log, which the database refuses to change.

A migration describes the past, not the present: it never imports `tables.py`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SLIDE_STATES = "'pending', 'done', 'no_tissue', 'qc_failed', 'refused', 'unreadable', 'failed', 'excluded'"
_TASK_STATES = "'blocked', 'ready', 'leased', 'done', 'ended'"


def upgrade() -> None:
    _make_study()
    _make_slide()
    _make_task()
    _make_audit()
    _make_reading()
    _make_answer()
    _forbid_changes()


def _make_study() -> None:
    op.create_table(
        "study",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("protocol_sha256", sa.String(64), nullable=False),
        sa.Column("manifest_sha256", sa.String(64), nullable=False),
        sa.Column("audit_seq", sa.BigInteger(), nullable=False),
        sa.Column("audit_hash", sa.String(64), nullable=False),
        sa.CheckConstraint("state IN ('running', 'paused')", name=op.f("ck_study_state")),
        sa.PrimaryKeyConstraint("study_id", name=op.f("pk_study")),
    )


def _make_slide() -> None:
    op.create_table(
        "slide",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("slide_id", sa.String(64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("source_sha256", sa.String(64)),
        sa.Column("site", sa.String(200)),
        sa.Column("scanner", sa.String(200)),
        sa.Column("priority", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("code", sa.String(64)),
        sa.Column("message", sa.Text()),
        sa.Column("ended_utc", sa.String(32)),
        sa.CheckConstraint(f"state IN ({_SLIDE_STATES})", name=op.f("ck_slide_state")),
        sa.ForeignKeyConstraint(["study_id"], ["study.study_id"], name=op.f("fk_slide_study_id_study")),
        sa.PrimaryKeyConstraint("study_id", "slide_id", name=op.f("pk_slide")),
    )
    op.create_index(op.f("ix_slide_study_id_ordinal"), "slide", ["study_id", "ordinal"])
    op.create_index(op.f("ix_slide_study_id_state_ordinal"), "slide", ["study_id", "state", "ordinal"])


def _make_task() -> None:
    op.create_table(
        "task",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("slide_id", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(96), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("token", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("beat", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("owner", sa.String(200)),
        sa.Column("not_before", sa.Float()),
        sa.Column("beat_utc", sa.String(32)),
        sa.Column("started_utc", sa.String(32)),
        sa.Column("ended_utc", sa.String(32)),
        sa.Column("seconds", sa.Float()),
        sa.Column("code", sa.String(64)),
        sa.Column("message", sa.Text()),
        sa.Column("output_sha256", sa.String(64)),
        sa.Column("measures", sa.Text()),
        sa.CheckConstraint(f"state IN ({_TASK_STATES})", name=op.f("ck_task_state")),
        sa.ForeignKeyConstraint(
            ["study_id", "slide_id"], ["slide.study_id", "slide.slide_id"], name=op.f("fk_task_study_id_slide_id_slide")
        ),
        sa.PrimaryKeyConstraint("study_id", "slide_id", "position", name=op.f("pk_task")),
    )
    in_order: list[str | sa.TextClause] = [
        "study_id",
        "state",
        sa.text("priority DESC"),
        sa.text("position DESC"),
        "ordinal",
    ]
    op.create_index("ix_task_next", "task", in_order)


def _make_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("utc", sa.String(32), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("salt", sa.String(32)),
        sa.Column("subject", sa.String(200)),
        sa.Column("why", sa.Text()),
        sa.Column("before", sa.String(64)),
        sa.Column("after", sa.String(64)),
        sa.Column("details", sa.Text()),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["study.study_id"], name=op.f("fk_audit_study_id_study")),
        sa.PrimaryKeyConstraint("study_id", "seq", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_study_id_subject_seq"), "audit", ["study_id", "subject", "seq"])


def _make_reading() -> None:
    op.create_table(
        "reading",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("reader", sa.String(64), nullable=False),
        sa.Column("session", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("slide_id", sa.String(64), nullable=False),
        sa.Column("arm", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_utc", sa.String(32)),
        sa.Column("signed_utc", sa.String(32)),
        sa.Column("seconds", sa.Float()),
        sa.CheckConstraint("state IN ('open', 'started', 'signed', 'erased')", name=op.f("ck_reading_state")),
        sa.ForeignKeyConstraint(
            ["study_id", "slide_id"],
            ["slide.study_id", "slide.slide_id"],
            name=op.f("fk_reading_study_id_slide_id_slide"),
        ),
        sa.PrimaryKeyConstraint("study_id", "reader", "session", "position", name=op.f("pk_reading")),
    )
    op.create_index(op.f("ix_reading_study_id_slide_id"), "reading", ["study_id", "slide_id"])


def _make_answer() -> None:
    op.create_table(
        "answer",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("reader", sa.String(64), nullable=False),
        sa.Column("session", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("question", sa.String(64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("utc", sa.String(32), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id", "reader", "session", "position"],
            ["reading.study_id", "reading.reader", "reading.session", "reading.position"],
            name=op.f("fk_answer_study_id_reader_session_position_reading"),
        ),
        sa.PrimaryKeyConstraint("study_id", "reader", "session", "position", "seq", name=op.f("pk_answer")),
    )


_KEPT = ("study_id", "seq", "utc", "actor", "action", "content", "previous", "hash")
_ERASED = ("salt", "subject", "why", "before", "after", "details")
_ONLY_ADDED = "the log of a study is only added to"


def _forbid_changes() -> None:
    """Guard against accidents; the chain guards against the database's owner. Erasing an entry's content is allowed:
    `verify` finds every erasure that the log does not name."""
    same = {"sqlite": "IS", "postgresql": "IS NOT DISTINCT FROM"}[op.get_bind().dialect.name]
    is_erasure = " AND ".join(
        [f"NEW.{name} {same} OLD.{name}" for name in _KEPT] + [f"NEW.{name} IS NULL" for name in _ERASED]
    )
    if op.get_bind().dialect.name == "sqlite":
        refuse = f"BEGIN SELECT RAISE(ABORT, '{_ONLY_ADDED}'); END"
        op.execute(f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit WHEN NOT ({is_erasure}) {refuse}")
        op.execute(f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit {refuse}")
        return
    op.execute(
        "CREATE FUNCTION audit_only_added_to() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_ONLY_ADDED}'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit FOR EACH ROW WHEN (NOT ({is_erasure})) "
        "EXECUTE FUNCTION audit_only_added_to()"
    )
    op.execute(
        "CREATE TRIGGER audit_no_delete BEFORE DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_only_added_to()"
    )


def downgrade() -> None:
    raise NotImplementedError("A study's log cannot be downgraded; restore a backup of the database instead.")
