"""Annotation entries of the project's log: one per annotation drawn or changed, one per imported file.

Every entry has hashes of whole rows. A replaced row is kept unchanged among the earlier revisions, so that everything
ever drawn can be compared with the log (`proof.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.ledger import Change, digest, row_sha256, slide_subject
from pipeline.review.rows.tables import annotation, annotation_class
from pipeline.review.rows.view_context import details_of

IMPORTED = "annotations imported"
"""Action of the single entry for all annotations imported from a file."""
CLASS_ADDED = "annotation class added"
OF_ONE = ("annotation drawn", "annotation changed", "annotation deleted", "annotation restored")
"""Actions of the entries about one annotation."""


def entry_of(action: str, before: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Change:
    """The entry for one annotation.

    Args:
        before, new: rows of the table `annotation`.
    """
    return Change(
        new["changed_by"],
        action,
        slide_subject(new["slide_id"]),
        details={
            "annotation": new["annotation_id"],
            "revision": new["revision"],
            "kind": new["kind"],
            "class": new["class_name"],
            "before": row_sha256(annotation, before) if before else None,
            "after": row_sha256(annotation, new),
        },
    )


def import_entry(slide_id: str, change: int, entries: Sequence[Change], details: Mapping[str, Any]) -> Change:
    """The single entry for the annotations imported from a file.

    Args:
        change: the slide's counter, the same for all of them.
        entries: those that `entry_of` returned for them.
    """
    rows = [(entry.details["annotation"], entry.details["revision"], entry.details["after"]) for entry in entries]
    summary = {"annotations": len(rows), "change": change, "after": digest_of_all(rows), **details}
    return Change(entries[0].actor, IMPORTED, slide_subject(slide_id), details=summary)


def digest_of_all(rows: Iterable[tuple[str, int, str]]) -> str:
    """One hash over the ids, revisions and hashes of many rows, whatever their order."""
    sha256: str = digest(sorted(list(row) for row in rows))
    return sha256


def class_entry(row: Mapping[str, Any], actor: str) -> Change:
    """The entry for a class that the project uses for the first time. It outlives every slide that has the class."""
    return Change(actor, CLASS_ADDED, "annotation classes", details=details_of(annotation_class, row))
