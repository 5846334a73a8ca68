"""An index by which the changes of others to a person's annotations are found on every slide at once."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        op.f("ix_annotation_author_parent_id_changed_by"), "annotation", ["author", "parent_id", "changed_by"]
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_annotation_author_parent_id_changed_by"), "annotation")
