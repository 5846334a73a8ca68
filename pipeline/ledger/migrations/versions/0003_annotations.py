"""Annotations drawn on slides, with every earlier revision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "annotated_slide",
        sa.Column("slide_id", sa.String(64), nullable=False),
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.Column("vertices", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("slide_id", name=op.f("pk_annotated_slide")),
    )
    _make_annotation()
    op.create_table(
        "annotation_revision",
        sa.Column("slide_id", sa.String(64), nullable=False),
        sa.Column("annotation_id", sa.String(36), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False, autoincrement=False),
        *_revision(),
        sa.ForeignKeyConstraint(
            ["slide_id", "annotation_id"],
            ["annotation.slide_id", "annotation.annotation_id"],
            name=op.f("fk_annotation_revision_slide_id_annotation"),
        ),
        sa.PrimaryKeyConstraint("slide_id", "annotation_id", "revision", name=op.f("pk_annotation_revision")),
    )
    op.create_table(
        "annotation_class",
        sa.Column("class_name", sa.String(100), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("class_name", name=op.f("pk_annotation_class")),
    )


def _revision() -> list[sa.Column[str] | sa.Column[int] | sa.Column[float]]:
    return [
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("object_type", sa.String(16), nullable=False),
        sa.Column("geometry", sa.Text(), nullable=False),
        sa.Column("class_name", sa.String(100)),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("changed_by", sa.String(200), nullable=False),
        sa.Column("changed_utc", sa.String(32), nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("made_utc", sa.String(32), nullable=False),
        sa.Column("left_px0", sa.Float(), nullable=False),
        sa.Column("top_px0", sa.Float(), nullable=False),
        sa.Column("right_px0", sa.Float(), nullable=False),
        sa.Column("bottom_px0", sa.Float(), nullable=False),
        sa.Column("area_px0", sa.Float(), nullable=False),
        sa.Column("vertices", sa.Integer(), nullable=False),
    ]


def _make_annotation() -> None:
    op.create_table(
        "annotation",
        sa.Column("slide_id", sa.String(64), nullable=False),
        sa.Column("annotation_id", sa.String(36), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        *_revision(),
        sa.CheckConstraint("state IN ('live', 'deleted')", name=op.f("ck_annotation_state")),
        sa.ForeignKeyConstraint(
            ["slide_id"], ["annotated_slide.slide_id"], name=op.f("fk_annotation_slide_id_annotated_slide")
        ),
        sa.PrimaryKeyConstraint("slide_id", "annotation_id", name=op.f("pk_annotation")),
    )
    op.create_index(op.f("ix_annotation_slide_id_change"), "annotation", ["slide_id", "change"])


def downgrade() -> None:
    raise NotImplementedError("Annotations cannot be downgraded; restore a backup of the database instead.")
