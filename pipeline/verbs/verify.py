"""`gemslide verify`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import typer

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError, DamagedStoreError
from pipeline.ingest.source_comparison import verify_store
from pipeline.naming.slides import MANIFEST_SUFFIXES, find_stores
from pipeline.naming.sources import SourceNames
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import Project, open_project, slide_id_of
from pipeline.run_record import SlideOutcome
from pipeline.store.format.root import read_root
from pipeline.store.layers.overlays import list_predictions, read_predictions
from pipeline.store.layers.tissue_origin import outdated_models, outdated_text
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import BadRecipeError, UnreadableError

SAMPLE_CHUNKS = 64
"""Chunks compared with the source when every chunk is decoded."""


def run_verify(
    slides: list[str], project_dir: Path, *, source: Path | None, series: str | None, chunks: str, as_json: bool
) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(*([source] if source else []), project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        num_chunks = _parse_num_chunks(chunks)
        for store, slide in _stores(slides, project, source):
            compare = partial(
                verify_store, store, sample_chunks=num_chunks or SAMPLE_CHUNKS, every_chunk=num_chunks is None
            )
            check = partial(_compared, store, slide, series, compare)
            reporter.attempt(slide_id_of(store), partial(_verify, store, project, check))
    reporter.finish()


def _parse_num_chunks(chunks: str) -> int | None:
    """Chunks to check in each level; None: all."""
    if chunks == "all":
        return None
    if chunks.isascii() and chunks.isdecimal() and 0 < len(chunks) < 10 and int(chunks) > 0:
        return int(chunks)
    raise BadRecipeError(f"--sample-chunks {chunks!r:.40}: give a whole number from 1, or all.")


def _stores(slides: list[str], project: Project, source: Path | None) -> list[tuple[StorePath, Path | None]]:
    """Stores, with the slides they were made from where given."""
    if source is not None and source.suffix.lower() in MANIFEST_SUFFIXES:
        cohort = load_cohort(source)
        wanted = {slide_id_of(Path(name)) for name in slides}
        unknown = sorted(wanted - {entry.slide_id for entry in cohort.included})
        entries = [e for e in cohort.included if not wanted or e.slide_id in wanted]
        if unknown or not entries:
            raise BadManifestError(f"{source}: has no slide {', '.join(unknown) or 'that is not excluded'}.")
        return [(project.stored_at(entry.slide_id), cohort.slide_path(entry)) for entry in entries]
    stores = find_stores(slides, project)
    if source is not None and len(stores) != 1:
        raise BadManifestError(
            f"--source {source.name} is one slide, but {len(stores)} stores are named. Name its store, or a manifest."
        )
    return [(store, source) for store in stores]


def _compared(store: StorePath, source: Path | None, series: str | None, compare: Callable[..., str]) -> str:
    """Check a store, if it is linked with the slide that it points at. Returns what was checked."""
    if isinstance(store, ObjectPath) or not _is_linked(store):
        return compare(source=source, series=series)
    from pipeline.ingest.linked import verify_linked

    return verify_linked(store, source, series, lambda path, of: compare(source=path, series=of))


def _is_linked(store: StorePath) -> bool:
    with suppress(UnreadableError):  # whatever is wrong, it is found and explained when the store is checked
        return read_root(store).link is not None
    return False


def _verify(store: StorePath, project: Project, check: Callable[[], str]) -> SlideOutcome:
    """Check a store and its results."""
    start = time.perf_counter()
    checked = check() + _check_results(store, project)
    outdated = outdated_text(outdated_models(store))
    if outdated:
        message = f"warning: slide {slide_id_of(store)}: {outdated}. Run `gemslide infer` to recreate them."
        typer.echo(message, err=True)
        checked += f"; {outdated}"
    seconds = round(time.perf_counter() - start, 3)
    return SlideOutcome(slide_id_of(store), "done", message=checked, output=str(store), seconds=seconds)


def _check_results(store: StorePath, project: Project) -> str:
    """Compare result files with the predictions in the store. Returns what was checked, or "" if nothing was.

    Raises:
        DamagedStoreError: a file disagrees.
    """
    slide_id = slide_id_of(store)
    folders = {model_id: project.result_dir(slide_id, model_id) for model_id in list_predictions(store)}
    folders = {model_id: folder for model_id, folder in folders.items() if folder.is_dir()}
    if not folders or not project.owns(store):
        return ""
    from pipeline.inference.results.check import check_results  # its libraries are slow to import

    reader = StoreReader(store)
    for model_id, folder in folders.items():
        faults = check_results(folder, read_predictions(store, model_id), reader=reader)
        if faults:
            raise DamagedStoreError(
                f"{folder}: {'; '.join(faults)}. The store is intact; `gemslide infer` rewrites these files from it."
            )
    return f", results of {len(folders)} models as predicted" if len(folders) > 1 else ", results as predicted"
