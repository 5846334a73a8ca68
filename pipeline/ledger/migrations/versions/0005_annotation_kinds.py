"""Annotations that belong to another one (marks of a count, answers), and bookmarks' views."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from training.foundation.errors import UnreadableError

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TABLES = ("annotation", "annotation_revision")


def upgrade() -> None:
    if op.get_bind().execute(sa.text("SELECT count(*) FROM annotation")).scalar_one():
        # The log has hashes of whole rows: with more columns, every older entry would look forged.
        raise UnreadableError(
            "This project's annotations were saved by an earlier version of gemslide. Export them with that version "
            "(`gemslide annotations export`), and import them into a new project."
        )
    for table in _TABLES:
        op.add_column(table, sa.Column("parent_id", sa.String(36)))
        op.add_column(table, sa.Column("view", sa.String(1000)))
    op.create_index(op.f("ix_annotation_slide_id_parent_id"), "annotation", ["slide_id", "parent_id"])


def downgrade() -> None:
    raise NotImplementedError("Annotations cannot be downgraded; restore a backup of the database instead.")
