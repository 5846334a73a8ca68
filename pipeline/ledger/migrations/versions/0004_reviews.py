"""Reviews of slides by people: reviewed hotspots, coverage, reviews outside studies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _make_hotspot_review()
    _make_coverage()
    _make_review()


def _looking() -> list[sa.Column[str]]:
    """Columns for who viewed which slide, and for what."""
    lengths = {"study_id": 64, "reading": 96, "slide_id": 64, "person": 200}
    return [sa.Column(name, sa.String(length), nullable=False) for name, length in lengths.items()]


def _make_hotspot_review() -> None:
    of_hotspot = ("model_id", "predictions_sha256", "class_name", "x_px0", "y_px0")
    op.create_table(
        "hotspot_review",
        *_looking(),
        sa.Column("model_id", sa.String(100), nullable=False),
        sa.Column("predictions_sha256", sa.String(64), nullable=False),
        sa.Column("class_name", sa.String(200), nullable=False),
        sa.Column("x_px0", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("y_px0", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("utc", sa.String(32), nullable=False),
        sa.CheckConstraint("state IN ('seen', 'accepted', 'rejected')", name=op.f("ck_hotspot_review_state")),
        sa.PrimaryKeyConstraint(
            "study_id", "reading", "slide_id", "person", *of_hotspot, name=op.f("pk_hotspot_review")
        ),
    )
    op.create_index(op.f("ix_hotspot_review_slide_id"), "hotspot_review", ["slide_id"])


def _make_coverage() -> None:
    op.create_table(
        "coverage",
        *_looking(),
        sa.Column("cell_um", sa.Float(), nullable=False),
        sa.Column("columns", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("finest", sa.LargeBinary(), nullable=False),
        sa.Column("ticks", sa.LargeBinary(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("utc", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("study_id", "reading", "slide_id", "person", name=op.f("pk_coverage")),
    )
    op.create_index(op.f("ix_coverage_slide_id"), "coverage", ["slide_id"])


def _make_review() -> None:
    op.create_table(
        "review",
        sa.Column("review_id", sa.String(32), nullable=False),
        sa.Column("slide_id", sa.String(64), nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("person", sa.String(200), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("model_id", sa.String(100)),
        sa.Column("class_name", sa.String(200)),
        sa.Column("predictions_sha256", sa.String(64)),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("utc", sa.String(32), nullable=False),
        sa.CheckConstraint("verdict IN ('agree', 'disagree', 'cannot_judge')", name=op.f("ck_review_verdict")),
        sa.PrimaryKeyConstraint("review_id", name=op.f("pk_review")),
    )
    op.create_index(op.f("ix_review_slide_id"), "review", ["slide_id"])


def downgrade() -> None:
    raise NotImplementedError("Reviews cannot be downgraded; restore a backup instead.")
