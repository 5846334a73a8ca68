"""`gemslide verify`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pipeline.cli_output import Reporter, errors_in_words
from pipeline.errors import BadManifestError
from pipeline.ingest.add_checksums import add_checksums
from pipeline.ingest.verify import verify_store
from pipeline.manifest import load_cohort
from pipeline.project import Project, open_project, slide_id_of
from pipeline.run_record import SlideOutcome
from pipeline.source_names import SourceNames


def run_verify(
    slides: list[str],
    project_dir: Path,
    *,
    source: Path | None,
    series: str | None,
    sample_chunks: int,
    every_chunk: bool,
    with_checksums: bool,
    as_json: bool,
) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(*([source] if source else []), project=project))
    reporter.sources.add_typed(slides, project)
    with errors_in_words(as_json=as_json, reporter=reporter):
        for store, slide in _stores(slides, project, source):
            check = partial(
                verify_store, store, source=slide, series=series, sample_chunks=sample_chunks, every_chunk=every_chunk
            )
            reporter.attempt(slide_id_of(store), partial(_verify, store, check, with_checksums=with_checksums))
    reporter.finish()


def _stores(slides: list[str], project: Project, source: Path | None) -> list[tuple[Path, Path | None]]:
    """Stores with the slides they were made from, where these are named."""
    if source is not None and source.suffix.lower() == ".csv":
        cohort = load_cohort(source)
        entries = [e for e in cohort.included if not slides or e.slide_id in slides]
        return [(project.store_path(entry.slide_id), cohort.slide_path(entry)) for entry in entries]
    names = slides or project.slide_ids()
    if not names:
        raise BadManifestError(f"{project.slides_dir}: no slides. Run `gemslide ingest` first, or name a store.")
    if source is not None and len(names) != 1:
        raise BadManifestError(
            f"--source {source.name} is one slide, {len(names)} stores are named. Name its store, or a manifest."
        )
    return [(_store(name, project), source) for name in names]


def _store(name: str, project: Project) -> Path:
    return Path(name) if (Path(name) / "zarr.json").exists() else project.store_path(name)


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
