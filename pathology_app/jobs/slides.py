"""Each slide of a run with its state, from the run's log or record and from the ids that its job names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pathology_app.jobs.history import RunSummary
from pathology_app.jobs.job_log import MAX_KEPT, SlideEnd
from pathology_app.jobs.progress import Progress
from pipeline.project import Project
from training.foundation.reading import read_json_file

MAX_RECORDS = 8
"""Records of runs whose slides are kept in memory."""
WAITING, NOT_STARTED, IN_PROGRESS = "waiting", "not started", "in progress"


@dataclass(frozen=True)
class RunSlides:
    """Slides of a run.

    Attributes:
        ends: one per slide: those without a result first, then those that have not ended, then the others.
        unlisted: number of further slides.
    """

    ends: Sequence[SlideEnd]
    unlisted: int


def slides_of(project: Project, run: RunSummary, progress: Progress) -> RunSlides:
    """Slides of a run now.

    Raises:
        OSError, ValueError: its record cannot be read.
    """
    ends = dict(progress.counted.ends) or (_recorded(project, run.run_id) if run.record else {})
    ids = run.job.job.slide_ids if run.job else ()
    current = progress.step.what.rpartition(" ")[2] if progress.step and run.runs else None
    waiting = WAITING if run.runs else NOT_STARTED
    pending = [
        SlideEnd(slide_id, IN_PROGRESS if slide_id == current else waiting) for slide_id in ids if slide_id not in ends
    ]
    at = {slide_id: number for number, slide_id in enumerate(ids)}
    in_order = sorted(ends.values(), key=lambda end: at.get(end.slide_id, len(at)))
    bad = [end for end in in_order if not end.is_good]
    good = [end for end in in_order if end.is_good]
    total = max(progress.total or 0, progress.ended)
    return RunSlides([*bad, *pending, *good], max(0, total - len(ends) - len(pending)))


def _recorded(project: Project, run_id: str) -> dict[str, SlideEnd]:
    path = project.runs_dir / f"{run_id}.json"
    stat = path.stat()
    return dict(_ends_in(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns)))


@lru_cache(maxsize=MAX_RECORDS)
def _ends_in(path: Path, version: tuple[int, ...]) -> Mapping[str, SlideEnd]:
    """Ends of the first slides of a record, which has no messages: they name files."""
    record = read_json_file(path)
    slides = record.get("slides") if isinstance(record, dict) else None
    found: dict[str, SlideEnd] = {}
    for slide in slides[:MAX_KEPT] if isinstance(slides, list) else ():
        if isinstance(slide, dict):
            slide_id, state, code = (str(slide.get(name) or "")[:100] for name in ("slide_id", "status", "code"))
            found[slide_id] = SlideEnd(slide_id, state[:20], code)
    return found
