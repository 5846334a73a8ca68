"""Check for what would stop each slide of a cohort, before the long runs: many at a time if there are many."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.annotations.files import read_annotations
from pipeline.annotations.frames import on_slide
from pipeline.annotations.shapes.region import check_regions
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.ingest.check import check_slide
from pipeline.jobs.pool import Pool
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import TileConfig
from pipeline.store.reading.threads import CORES
from training.foundation.errors import GemslideError, UnreadableError

FEW = 200
"""As many slides as are checked before a process has even started."""
AT_ONCE = 50
"""Slides given to a process at a time."""


@dataclass(frozen=True)
class _How:
    """Settings with which every slide is checked."""

    manifest: Path
    keep_associated: tuple[str, ...]
    tile: TileConfig


def check_entries(
    cohort: Cohort, keep_associated: Sequence[str] = (), tile: TileConfig | None = None
) -> Iterator[SlideOutcome]:
    """Open every slide that is not excluded, and its annotations, as `ingest` and `tile` will.

    Args:
        keep_associated: as in `[ingest]`.
        tile: `[tile]`, for the position of annotations.

    Yields:
        One outcome per slide, in the manifest's order; a problem with one does not stop the others. If there are many,
        that includes slides that crash the process that opens them.
    """
    entries, how = cohort.included, _How(cohort.path, tuple(keep_associated), tile or TileConfig())
    if len(entries) <= FEW:
        yield from (_check(how, entry) for entry in entries)
        return
    parts = [(how, entries[start : start + AT_ONCE]) for start in range(0, len(entries), AT_ONCE)]
    with Pool(_check_all, min(CORES, len(parts))) as pool:
        for part, outcomes in zip(parts, pool.in_order(parts), strict=True):
            yield from outcomes if isinstance(outcomes, list) else _one_by_one(pool, *part)


_Part = tuple[_How, Sequence[SlideEntry]]


def _check_all(part: _Part) -> list[SlideOutcome]:
    how, entries = part
    return [_check(how, entry) for entry in entries]


def _one_by_one(
    pool: Pool[_Part, list[SlideOutcome]], how: _How, entries: Sequence[SlideEntry]
) -> Iterator[SlideOutcome]:
    """Check slides one by one, of which one crashed the process that opened it."""
    for entry, outcomes in zip(entries, pool.in_order([(how, [entry]) for entry in entries]), strict=True):
        if isinstance(outcomes, list):
            yield from outcomes
        else:
            error = UnreadableError(
                f"{entry.path}: a process that opened it {outcomes}. The file is damaged; copy it again."
            )
            yield SlideOutcome.from_error(entry.slide_id, error, 0.0)


def _check(how: _How, entry: SlideEntry) -> SlideOutcome:
    start = time.perf_counter()
    try:
        message = _describe_slide(Cohort(path=how.manifest, entries=(entry,)), entry, how)
    except GemslideError as error:
        return SlideOutcome.from_error(entry.slide_id, error, time.perf_counter() - start)
    return SlideOutcome(entry.slide_id, "done", message=message, seconds=round(time.perf_counter() - start, 3))


def _describe_slide(cohort: Cohort, entry: SlideEntry, how: _How) -> str:
    slide = check_slide(cohort, entry, how.keep_associated)
    can_be = f"can be ingested; but {'; '.join(slide.warnings)}" if slide.warnings else "can be ingested"
    annotations = cohort.annotations_path(entry)
    if annotations is None:
        return can_be
    frame = slide.frame.as_set(how.tile.qupath_counts_from, allow_other_mpp=how.tile.allow_other_mpp)
    regions, repairs = labelled_regions(on_slide(read_annotations(annotations), frame))
    check_regions(regions, slide.size_wh_px0)
    return f"{can_be}; annotations: {repairs.summary()}"
