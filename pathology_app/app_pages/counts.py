"""What has been counted on a slide, as a table of its review."""

from __future__ import annotations

from collections.abc import Iterator

from pathology_app.html import tables as html_tables
from pathology_app.html.text import as_text
from pathology_app.slides.cache import SlideCache
from pipeline.ledger import Ledger
from pipeline.review import CountTally, SlideMasks, annotations_of, tally_annotations

_COLUMNS = (
    html_tables.Column("Count"),
    html_tables.Column("Class"),
    html_tables.Column("Number", "number"),
    html_tables.Column("Share (95 % interval)", "number"),
    html_tables.Column("Per mm² scanned", "number"),
    html_tables.Column("Area mm²", "number"),
    html_tables.Column("By"),
)


def counts_html(cache: SlideCache, ledger: Ledger, slide_id: str) -> str:
    """A table of the slide's counts; "" if nothing was counted.

    Raises:
        GemslideError, OSError: the slide or the ledger cannot be read.
    """
    annotations = annotations_of(ledger, slide_id, kinds=("count", "mark"))
    if not any(annotation.kind == "count" for annotation in annotations):
        return ""  # without reading the slide's masks
    tallies = tally_annotations(annotations, SlideMasks(cache.slide(slide_id).reader).areas)
    rows = [row for tally in tallies for row in _rows(tally)]
    return html_tables.beside({"Counts": html_tables.table(_COLUMNS, rows, label="Counts")})


def _rows(tally: CountTally) -> Iterator[tuple[object, ...]]:
    area, author = f"{tally.areas.area_mm2:.3g}", as_text(tally.author)
    if not tally.classes:
        yield tally.name, "", 0, "", "", area, author
    for row in tally.classes:
        density = "" if row.per_mm2 is None else f"{row.per_mm2:.3g}"
        yield tally.name, as_text(row.class_name), f"{row.number:,}", row.share_text, density, area, author
