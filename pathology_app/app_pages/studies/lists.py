"""Lists of studies and of a study's slides, as tables with links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pathology_app.app_pages.studies import rows as study_rows
from pathology_app.html.tables import Column, Link, table
from pathology_app.links.studies import StudyLink
from pipeline.ledger.ledger import StudyRow

_SLIDE_COLUMNS = {
    "slide": Column("Slide"),
    "state": Column("State"),
    "at": Column("Stage"),
    "code": Column("Code"),
    "reason": Column("Reason", "long"),
    "site": Column("Site"),
    "scanner": Column("Scanner"),
    "ended": Column("Ended (UTC)", "fixed"),
}
_STUDY_COLUMNS = {
    "study": Column("Study"),
    "title": Column("Title", "long"),
    "state": Column("State"),
    "slides": Column("Slides", "number"),
    "done": Column("Done", "number"),
    "pending": Column("Pending", "number"),
    "without_result": Column("Without a result", "number"),
}


def slides_html(
    study_id: str, slides: Sequence[study_rows.Entry], tasks: Iterable[study_rows.Entry], root: Path
) -> str:
    """A study's slides, each with a link to its history. Arguments: as `study_rows.slide_rows`."""
    rows = study_rows.slide_rows(slides, tasks, root)
    for row, slide in zip(rows, slides, strict=True):
        row["slide"] = Link(row["slide"], StudyLink(study_id, slide=slide.slide_id).query())
    return table(
        tuple(_SLIDE_COLUMNS.values()), ([row[name] for name in _SLIDE_COLUMNS] for row in rows), label="Slides"
    )


def studies_html(
    studies: Sequence[tuple[StudyRow, Mapping[str, int]]], without_names: Callable[[str], str] = str
) -> str:
    """All studies, each with a link to its overview.

    Args:
        without_names: removes hidden names from titles.
    """
    rows = study_rows.study_rows(studies)
    for row, (study, _) in zip(rows, studies, strict=True):
        row["study"] = Link(row["study"], StudyLink(study.study_id).query())
        row["title"] = without_names(row["title"])
    return table(
        tuple(_STUDY_COLUMNS.values()), ([row[name] for name in _STUDY_COLUMNS] for row in rows), label="Studies"
    )
