"""Registrations of two slides."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "registration",
        sa.Column("moving_id", sa.String(64), nullable=False),
        sa.Column("fixed_id", sa.String(64), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        *(sa.Column(f"m{row}{column}", sa.Float(), nullable=False) for row in (1, 2) for column in (1, 2, 3)),
        sa.Column("error_um", sa.Float()),
        sa.Column("places", sa.Integer(), nullable=False),
        sa.Column("matches", sa.Integer(), nullable=False),
        sa.Column("share_near", sa.Float()),
        sa.Column("dice", sa.Float()),
        sa.Column("moving_pixels", sa.String(64), nullable=False),
        sa.Column("fixed_pixels", sa.String(64), nullable=False),
        sa.Column("person", sa.String(200), nullable=False),
        sa.Column("utc", sa.String(32), nullable=False),
        sa.CheckConstraint("state IN ('saved', 'removed')", name=op.f("ck_registration_state")),
        sa.CheckConstraint("method IN ('features', 'points')", name=op.f("ck_registration_method")),
        sa.PrimaryKeyConstraint("moving_id", "fixed_id", "revision", name=op.f("pk_registration")),
    )
    op.create_index(op.f("ix_registration_fixed_id"), "registration", ["fixed_id"])


def downgrade() -> None:
    raise NotImplementedError("Registrations cannot be downgraded; restore a backup of the database instead.")
