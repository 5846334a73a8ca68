"""Table of a run's slides: a line each, with its state, the reason and what can be done. Pure: nothing here draws."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from pathology_app.html import tables as html_tables
from pathology_app.html.tables import Column, Link, Swatch
from pathology_app.html.text import without_folders
from pathology_app.jobs.history import RunSummary
from pathology_app.jobs.job_log import SlideEnd
from pathology_app.jobs.slides import IN_PROGRESS, NOT_STARTED, WAITING
from pathology_app.links.runs import RunLink
from pipeline.errors import MissingMppError

SLIDES_PER_PAGE = 50
TRY_AGAIN = "Try again with µm per pixel …"
_GREEN, _RED, _AMBER, _BLUE, _GREY = "#2e7d32", "#c62828", "#b26a00", "#1565c0", "#6b7280"
_STATES = {
    "done": ("done", _GREEN),
    "skipped": ("done before", _GREEN),
    "no_tissue": ("no tissue", _AMBER),
    "qc_failed": ("quality check failed", _AMBER),
    IN_PROGRESS: (IN_PROGRESS, _BLUE),
    WAITING: (WAITING, _GREY),
    NOT_STARTED: (NOT_STARTED, _GREY),
}
"""Word and colour by state; any other state is shown as it is, in red."""
_COLUMNS = (
    Column("State"),
    Column("Reason", "long"),
    Column("Code", "fixed", 1200),
    Column("Action", "fixed"),
)
_PENDING = (IN_PROGRESS, WAITING, NOT_STARTED)


def slides_html(
    run: RunSummary, ends: Sequence[SlideEnd], in_project: Collection[str], root: Path, *, may_start: bool
) -> str:
    """A line per slide.

    Args:
        in_project: slides that have a page.
        may_start: the person may start runs.
    """
    rows = [
        (
            end.slide_id,
            Swatch(*_STATES.get(end.state, (end.state.replace("_", " ") or "unknown", _RED))),
            _reason(run, end, in_project, root),
            end.code,
            _action(run, end, in_project, may_start=may_start),
        )
        for end in ends
    ]
    named = run.unit.capitalize()
    return html_tables.table((Column(named), *_COLUMNS), rows, label=f"{named}s of the run")


def may_try_again(run: RunSummary, end: SlideEnd, in_project: Collection[str]) -> bool:
    """Whether only the microns per pixel were missing, and the slide has not been ingested since."""
    return (
        run.verb == "ingest"
        and not run.runs
        and end.code == MissingMppError.code
        and not end.is_good
        and end.slide_id not in in_project
    )


def _reason(run: RunSummary, end: SlideEnd, in_project: Collection[str], root: Path) -> str:
    has_failed = not end.is_good and end.state not in _PENDING
    is_ingested_since = run.verb == "ingest" and has_failed and end.slide_id in in_project
    since = "Ingested since, by another run. " if is_ingested_since else ""
    if not end.message and end.code == MissingMppError.code:
        return f"{since}Its file does not state the µm per pixel."
    return since + without_folders(end.message, root)


def _action(run: RunSummary, end: SlideEnd, in_project: Collection[str], *, may_start: bool) -> Link | None:
    if may_start and may_try_again(run, end, in_project):
        return Link(TRY_AGAIN, RunLink(run.run_id, again=end.slide_id).query())
    if end.slide_id not in in_project or run.unit != "slide":
        return None  # a patient has no page, whatever a slide is called
    model = {"model": run.about} if run.verb == "infer" and end.is_good else {}
    return Link("Open", {"slide": end.slide_id, **model})
