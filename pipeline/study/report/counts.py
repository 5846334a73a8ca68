"""What people have counted on the study's slides: a row for each class of each count."""

from __future__ import annotations

from pipeline.review import CountTally, SlideMasks, slides_with, tally_slide
from pipeline.store import StoreReader
from pipeline.study.report.facts import Facts
from pipeline.study.report.table import Row, Table
from training.foundation.errors import GemslideError

COLUMNS = (
    "slide", "count", "class", "number", "share", "lowest", "highest", "per mm² scanned", "per mm² tissue", "area mm²",
    "scanned mm²", "tissue mm²", "author", "changed UTC",
)  # fmt: skip
_NOTE = (
    "As they were when this report was made. A share is of all objects of its count, with Wilson's interval at 95 %; "
    "densities are of the scanned part of the count's area, and of the tissue in it."
)


def count_tables(facts: Facts) -> tuple[list[Table], list[str]]:
    """The counts, and a sentence for each slide whose counts cannot be computed.

    Raises:
        GemslideError: the ledger is unavailable.
    """
    study = facts.study
    rows: list[Row] = []
    missing = []
    counted = set(slides_with(study.ledger, "count"))
    for slide_id in (name for name in facts.slides["slide_id"] if name in counted):
        try:
            masks = SlideMasks(StoreReader(study.project.stored_at(slide_id)))
        except (GemslideError, OSError) as error:
            missing.append(f"The counts on slide {slide_id} are missing here: {error}")
            continue
        rows += [row for tally in tally_slide(study.ledger, slide_id, masks.areas) for row in _rows(slide_id, tally)]
    return ([Table("counts", "Counts on the slides", COLUMNS, rows, note=_NOTE)] if rows else []), missing


def _rows(slide_id: str, tally: CountTally) -> list[Row]:
    areas = tally.areas
    of_all = (areas.area_mm2, areas.scanned_mm2, areas.tissue_mm2, tally.author, tally.changed_utc[:19])
    if not tally.classes:
        return [(slide_id, tally.name, "", 0, None, None, None, None, None, *of_all)]
    return [
        (
            slide_id, tally.name, row.class_name, row.number, row.share, row.share_low, row.share_high, row.per_mm2,
            row.per_mm2_tissue, *of_all,
        )
        for row in tally.classes
    ]  # fmt: skip
