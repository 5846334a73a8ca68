"""The road of ingest: one slide file into one complete store."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pipeline.config import IngestConfig
from pipeline.errors import ChangedSourceError, LockedError, UnreadableError
from pipeline.files import new_folder, sha256_of
from pipeline.ingest.mpp import Mpp, resolve_mpp
from pipeline.ingest.store_writer import StoreWriter, count_shards
from pipeline.progress import Advance, no_bar
from pipeline.project import Project, check_slide_id
from pipeline.slides.open_slide import open_slide
from pipeline.store.layout import IMAGE
from pipeline.store.metadata import Level, SlideAttributes, Source
from pipeline.store.reader import StoreReader


@dataclass(frozen=True)
class IngestRequest:
    """One slide to ingest, as the manifest or the command line names it."""

    path: Path
    slide_id: str
    mpp_manifest: float | None = None
    mpp_option: float | None = None


@dataclass(frozen=True)
class IngestReport:
    """What became of it."""

    slide_id: str
    store: Path
    sha256: str
    skipped: bool
    tissue_fraction: float
    levels: tuple[Level, ...]
    seconds: float


def ingest_slide(
    request: IngestRequest,
    project: Project,
    config: IngestConfig,
    *,
    advance: Advance = no_bar,
) -> IngestReport:
    """Turn one slide file into `slides/<slide_id>.ome.zarr`; a finished store of the same bytes is kept.

    Raises:
        MissingMppError, UnreadableError, CorruptTileError, NotBrightfieldRgbError, ClaimsTooMuchError: the slide.
        ChangedSourceError: the id stands for other bytes, or the file changed while it was read.
        LockedError, DiskFullError: the target.
    """
    start = time.perf_counter()
    slide_id = check_slide_id(request.slide_id, where=request.path.name)
    store = project.store_path(slide_id)
    with open_slide(request.path) as slide:
        mpp = resolve_mpp(
            slide.info, slide_id=slide_id, manifest_mpp=request.mpp_manifest, option_mpp=request.mpp_option
        )
        before = _identity(request.path)
        source = Source(sha256=sha256_of(request.path), bytes=before[0], format=slide.info.format)
        if store.exists():
            return _finished(store, source, mpp, config, start)
        with new_folder(store) as folder:
            if store.exists():
                raise LockedError(f"{store.name}: another process finished it just now. Run again to check it.")
            writer = StoreWriter(folder, slide, config, mpp, advance)
            tissue = writer.write(request.path, slide_id, source)
            if _identity(request.path) != before:
                raise ChangedSourceError(
                    f"slide {slide_id}: {request.path.name} changed while it was read. "
                    "Wait until it is fully copied and ingest it again."
                )
    seconds = time.perf_counter() - start
    return IngestReport(slide_id, store, source.sha256, False, tissue.fraction, tuple(writer.levels), round(seconds, 3))


def _identity(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _check_complete(store: Path, attributes: SlideAttributes) -> None:
    """Notice shards that went away: a reader would take them for white."""
    found = [count_shards(store / IMAGE / level.path) for level in attributes.levels]
    if found != attributes.ingest.get("shards"):
        raise UnreadableError(
            f"{store}: has {found} shard files per level, was written with {attributes.ingest.get('shards')}. "
            "The store is damaged; delete it and ingest the slide again."
        )


def _finished(store: Path, source: Source, mpp: Mpp, config: IngestConfig, start: float) -> IngestReport:
    """Skip a store made from the same bytes with the same settings; refuse anything else."""
    reader = StoreReader(store)
    try:
        attributes = SlideAttributes.model_validate(reader.attributes)
    except ValidationError as error:
        raise UnreadableError(
            f"{store}: its attributes are damaged ({error.error_count()} errors). Delete it and ingest again."
        ) from error
    if attributes.source.sha256 != source.sha256:
        raise ChangedSourceError(
            f"slide {reader.slide_id}: the store {store} was made from other bytes (SHA-256 "
            f"{attributes.source.sha256[:12]}…, now {source.sha256[:12]}…). Give the slide another `slide_id`, "
            "or delete the store if the old file was wrong."
        )
    settings = {"mpp0": attributes.mpp0, "ingest": attributes.ingest.get("settings")}
    wanted = {"mpp0": mpp.mpp0, "ingest": config.model_dump(mode="json")}
    if settings != wanted:
        changed = ", ".join(key for key in wanted if settings[key] != wanted[key])
        raise ChangedSourceError(
            f"slide {reader.slide_id}: the store {store} was made with other settings ({changed}). "
            "Delete it to ingest again, or keep the old settings."
        )
    _check_complete(store, attributes)
    fraction = float(attributes.ingest.get("tissue_fraction", 0.0))
    seconds = round(time.perf_counter() - start, 3)
    return IngestReport(reader.slide_id, store, source.sha256, True, fraction, attributes.levels, seconds)
