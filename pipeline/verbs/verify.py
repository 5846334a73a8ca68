"""`gemslide verify`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pipeline.cli_output import Reporter, report_errors
from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError, BadRecipeError
from pipeline.ingest.add_checksums import add_checksums
from pipeline.ingest.source_comparison import verify_store
from pipeline.project import Project, open_project, slide_id_of
from pipeline.run_record import SlideOutcome
from pipeline.slide_names import find_stores
from pipeline.source_names import SourceNames

SAMPLE_CHUNKS = 64
"""Compared with the source where every chunk is decoded."""


def run_verify(
    slides: list[str],
    project_dir: Path,
    *,
    source: Path | None,
    series: str | None,
    chunks: str,
    with_checksums: bool,
    as_json: bool,
) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(*([source] if source else []), project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        num_chunks = _number_of(chunks)
        for store, slide in _stores(slides, project, source):
            check = partial(
                verify_store,
                store,
                source=slide,
                series=series,
                sample_chunks=num_chunks or SAMPLE_CHUNKS,
                every_chunk=num_chunks is None,
            )
            reporter.attempt(slide_id_of(store), partial(_verify, store, check, with_checksums=with_checksums))
    reporter.finish()


def _number_of(chunks: str) -> int | None:
    """Chunks to look at in each level; None: all."""
    if chunks == "all":
        return None
    if chunks.isascii() and chunks.isdecimal() and 0 < len(chunks) < 10 and int(chunks) > 0:
        return int(chunks)
    raise BadRecipeError(f"--sample-chunks {chunks!r:.40}: give a number from 1 on, or all.")


def _stores(slides: list[str], project: Project, source: Path | None) -> list[tuple[Path, Path | None]]:
    """Stores with the slides they were made from, where these are named."""
    if source is not None and source.suffix.lower() == ".csv":
        cohort = load_cohort(source)
        wanted = {slide_id_of(Path(name)) for name in slides}
        unknown = sorted(wanted - {entry.slide_id for entry in cohort.included})
        entries = [e for e in cohort.included if not wanted or e.slide_id in wanted]
        if unknown or not entries:
            raise BadManifestError(f"{source}: has no slide {', '.join(unknown) or 'that is not excluded'}.")
        return [(project.store_path(entry.slide_id), cohort.slide_path(entry)) for entry in entries]
    stores = find_stores(slides, project)
    if source is not None and len(stores) != 1:
        raise BadManifestError(
            f"--source {source.name} is one slide, {len(stores)} stores are named. Name its store, or a manifest."
        )
    return [(store, source) for store in stores]


def _verify(store: Path, check: Callable[[], str], *, with_checksums: bool) -> SlideOutcome:
    """Check a store, then add checksums where they are asked for: only to one that is whole."""
    start = time.perf_counter()
    checked = check()
    if with_checksums and add_checksums(store):
        checked = f"{check()}; checksums were added to its chunks"
    elif with_checksums:
        checked += "; its chunks have checksums, nothing to add"
    seconds = round(time.perf_counter() - start, 3)
    return SlideOutcome(slide_id_of(store), "done", message=checked, output=str(store), seconds=seconds)
