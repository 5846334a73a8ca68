"""Sessions of the web app and sign-in attempts, shared by all of its processes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "session",
        sa.Column("token_sha256", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64)),
        sa.Column("stamp", sa.String(64)),
        sa.Column("made", sa.Float(), nullable=False),
        sa.Column("seen", sa.Float(), nullable=False),
        sa.Column("ends", sa.Float(), nullable=False),
        sa.Column("revoked", sa.Float()),
        sa.CheckConstraint("kind IN ('session', 'link', 'exchange', 'provider')", name=op.f("ck_session_kind")),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_session")),
    )
    op.create_index(op.f("ix_session_ends"), "session", ["ends"])
    op.create_table(
        "attempt",
        sa.Column("subject", sa.String(120), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_attempt")),
    )


def downgrade() -> None:
    raise NotImplementedError("A ledger cannot be downgraded; restore a backup instead.")
