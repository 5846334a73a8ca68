"""The report of one slide: what it holds, and its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import shapely

from pipeline.case_report.snapshots import HEIGHT_PX, WIDTH_PX, Snapshot, snapshot
from pipeline.html_templates import templates_in
from pipeline.ledger import Ledger, utc_now
from pipeline.project import Project
from pipeline.review import (
    Annotation,
    CountTally,
    SlideMasks,
    annotations_of,
    class_colours,
    tally_annotations,
)
from pipeline.store.reading.reader import StoreReader
from training.foundation.reading import read_regular
from training.foundation.words.research_use import RESEARCH_USE

MAX_SNAPSHOTS, MAX_ROWS = 12, 200
_MAX_CARD_BYTES = 1 << 20
_MEASURED = ("ruler", "area", "arrow", "text")
_DRAWN = ("point", "line", "rectangle", "ellipse", "polygon", "freehand")

Row = tuple[str, ...]


@dataclass(frozen=True)
class ModelFacts:
    """A model whose predictions the slide has, with the limits that its card states."""

    model_id: str
    limits: tuple[str, ...]


@dataclass(frozen=True)
class CaseReport:
    """Content of a report; each table is a list of rows of text."""

    slide_id: str
    facts: tuple[Row, ...]
    snapshots: tuple[Snapshot, ...]
    counts: tuple[Row, ...]
    measurements: tuple[Row, ...]
    annotations: tuple[Row, ...]
    totals: tuple[Row, ...]
    models: tuple[ModelFacts, ...]
    author: str
    utc: str
    left_out: str


def case_report(
    project: Project, reader: StoreReader, ledger: Ledger | None, author: str, models: Sequence[str]
) -> CaseReport:
    """The report of a slide as its annotations are now.

    Args:
        author: who makes it, as the log names them.
        models: whose predictions may be shown to them.

    Raises:
        GemslideError: the ledger is unavailable, or the store cannot be read.
    """
    live = annotations_of(ledger, reader.slide_id) if ledger else []
    colours = dict(class_colours(ledger)) if ledger else {}
    bookmarks = [one for one in live if one.kind == "bookmark"]
    shown = [snapshot(reader, one, live, colours) for one in bookmarks[-MAX_SNAPSHOTS:]]
    drawn = [one for one in live if one.kind in _DRAWN]
    measured = [one for one in live if one.kind in _MEASURED]
    left_out = _left_out(
        ("saved views", len(bookmarks), MAX_SNAPSHOTS),
        ("measurements", len(measured), MAX_ROWS),
        ("annotations", len(drawn), MAX_ROWS),
    )
    return CaseReport(
        reader.slide_id,
        tuple(_facts(reader)),
        tuple(one for one in shown if one is not None),
        tuple(row for tally in tally_annotations(live, SlideMasks(reader).areas) for row in _count_rows(tally)),
        tuple(_row(one, reader.mpp0) for one in measured[-MAX_ROWS:]),
        tuple(_row(one, reader.mpp0) for one in drawn[-MAX_ROWS:]),
        tuple(_totals(drawn, reader.mpp0)),
        tuple(ModelFacts(model_id, _limits(project, model_id)) for model_id in models),
        author,
        utc_now()[:16].replace("T", " "),
        left_out,
    )


def page_of(report: CaseReport) -> str:
    """The report as one HTML page that needs nothing else."""
    templates = templates_in(Path(__file__).parent)
    size = {"width": WIDTH_PX, "height": HEIGHT_PX}
    page: str = templates.get_template("case.html.j2").render(
        report=report, research_use=RESEARCH_USE, gemslide=version("gemslide"), **size
    )
    return page


def _facts(reader: StoreReader) -> Iterator[Row]:
    width, height = reader.size_wh_px0
    width_mm, height_mm = width * reader.mpp0 / 1000, height * reader.mpp0 / 1000
    yield "Size", f"{width:,} × {height:,} pixels, {width_mm:.2f} × {height_mm:.2f} mm"
    yield "Scanned at", f"{reader.mpp0:.4g} µm per pixel"


def _count_rows(tally: CountTally) -> Iterator[Row]:
    tissue = "–" if tally.areas.tissue_mm2 is None else f"{tally.areas.tissue_mm2:.3g}"
    sizes = f"{tally.areas.area_mm2:.3g}", f"{tally.areas.scanned_mm2:.3g}", tissue
    for row in tally.classes:
        densities = _density(row.per_mm2), _density(row.per_mm2_tissue)
        yield tally.name, row.class_name, f"{row.number:,}", row.share_text, *densities, *sizes
    if not tally.classes:
        yield tally.name, "–", "0", "–", "–", "–", *sizes


def _density(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3g}"


def _row(annotation: Annotation, mpp0: float) -> Row:
    shape = annotation.shape
    area = f"{shape.area * (mpp0 / 1000) ** 2:,.4g}" if shape.area else ""
    length = f"{shape.length * mpp0:,.4g}" if shape.length else ""
    when = annotation.changed_utc[:16].replace("T", " ")
    return annotation.kind, annotation.class_name or "", area, length, annotation.note, annotation.author, when


def _totals(drawn: Sequence[Annotation], mpp0: float) -> Iterator[Row]:
    numbers = Counter(one.class_name or "(no class)" for one in drawn)
    for name, number in numbers.most_common():
        area = sum(float(shapely.area(one.shape)) for one in drawn if (one.class_name or "(no class)") == name)
        yield name, f"{number:,}", f"{area * (mpp0 / 1000) ** 2:,.4g}"


def _left_out(*lists: tuple[str, int, int]) -> str:
    parts = [f"{number - most:,} earlier {what}" for what, number, most in lists if number > most]
    return f"Left out: {', '.join(parts)}." if parts else ""


def _limits(project: Project, model_id: str) -> tuple[str, ...]:
    """The sentences below "Limits" in the model's card; none without a card."""
    path = project.model_path(model_id) / "card.md"
    if not path.is_file():
        return ()
    text = read_regular(path, max_bytes=_MAX_CARD_BYTES).decode("utf-8", "replace")
    _, found, rest = text.partition("## Limits\n")
    section = rest.partition("\n## ")[0] if found else ""
    return tuple(line.removeprefix("- ").strip() for line in section.splitlines() if line.startswith("- "))
