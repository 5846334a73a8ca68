"""Counts as rows of a table, with units in the headings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.review.counting.tally import CountTally

COUNT_COLUMNS = (
    "slide_id", "count", "class", "number", "share", "share_low_95", "share_high_95", "per_mm2_scanned",
    "per_mm2_tissue", "area_mm2", "scanned_mm2", "tissue_mm2", "marks_outside", "author", "changed_utc",
)  # fmt: skip


def count_rows(slide_id: str, tallies: Sequence[CountTally]) -> Iterator[dict[str, str]]:
    """One row for each class of each count; one row without a class for a count of nothing."""
    for tally in tallies:
        areas = tally.areas
        shared = {
            "slide_id": slide_id,
            "count": tally.name,
            "area_mm2": _decimal(areas.area_mm2),
            "scanned_mm2": _decimal(areas.scanned_mm2),
            "tissue_mm2": _decimal(areas.tissue_mm2),
            "marks_outside": str(tally.outside),
            "author": tally.author,
            "changed_utc": tally.changed_utc,
        }
        for row in tally.classes:
            yield {
                **shared,
                "class": row.class_name,
                "number": str(row.number),
                "share": _decimal(row.share),
                "share_low_95": _decimal(row.share_low),
                "share_high_95": _decimal(row.share_high),
                "per_mm2_scanned": _decimal(row.per_mm2),
                "per_mm2_tissue": _decimal(row.per_mm2_tissue),
            }
        if not tally.classes:
            yield {**shared, "class": "", "number": "0"}


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
