"""The ingest workflow: one slide into one complete store."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.errors import ChangedSourceError
from pipeline.files import new_folder, sha256_of_files
from pipeline.ingest.fill import fill_store
from pipeline.ingest.label_in_image import refuse_label_in_image
from pipeline.ingest.mpp import Mpp, resolve_mpp
from pipeline.ingest.tissue.missing import make_missing_mask
from pipeline.ingest.writing import Written, identity_of, write_compared
from pipeline.jobs.key import Key, differences
from pipeline.project import Project, check_slide_id
from pipeline.run_record import versions
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.slide import Slide
from pipeline.slides.registry import open_slide
from pipeline.store.format.layout import CONTRACT_VERSION, IMAGE
from pipeline.store.format.metadata import Level, SlideAttributes
from pipeline.store.format.root import read_root
from pipeline.store.layers.tissue_origin import settings_of_mask
from pipeline.store.links.links_file import keep_only, read_link
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import GemslideError, LockedError, UnreadableError
from training.foundation.progress import Advance, no_bar


@dataclass(frozen=True)
class IngestRequest:
    """One slide to ingest, as the manifest or the command line names it."""

    path: Path
    slide_id: str
    mpp_manifest: float | None = None
    mpp_option: float | None = None
    series: str | None = None
    """One of several slides in a file or folder."""


@dataclass(frozen=True)
class IngestReport:
    """Outcome of an ingest."""

    slide_id: str
    store: Path
    sha256: str
    skipped: bool
    tissue_fraction: float
    levels: tuple[Level, ...]
    seconds: float
    mask_made: bool = False
    """Of a store that was kept: whether its missing tissue mask was rebuilt."""
    other_mask: bool = False
    """Of a store that was kept: whether its mask was made otherwise than `[ingest.tissue]` says."""
    damaged: tuple[int, int] | None = None
    """Tiles of level 0 that are damaged and masked, and of how many; None: not checked."""
    warnings: tuple[str, ...] = ()
    """Clauses to know before relying on the store; they follow "slide S-1: "."""


def ingest_slide(
    request: IngestRequest,
    project: Project,
    config: IngestConfig,
    *,
    fill: bool = True,
    advance: Advance = no_bar,
) -> IngestReport:
    """Turn one slide into `slides/<slide_id>.ome.zarr`; a finished store of the same bytes is kept.

    A run that was killed leaves the shards it finished; the next one continues with the others.

    Args:
        fill: whether the tiles of a store that is linked are copied into it; else one that is verified is kept.

    Raises:
        MissingMppError, UnreadableError, CorruptTileError, NotBrightfieldRgbError, DecompressionBombError: the slide.
        ChangedSourceError: the id stands for other bytes, or the file changed while it was read.
        UnverifiedLinkError: the store is linked and unverified, and not to be filled.
        LockedError, DiskFullError: the target.
    """
    start = time.perf_counter()
    slide_id = check_slide_id(request.slide_id, where=request.path.name)
    store = project.store_path(slide_id)
    with opened(request, config, slide_id) as (slide, mpp):
        if store.exists() and not is_unverified(store):
            report = _finished(store, slide, mpp, config, start)
            return _filled(report, start, advance) if fill else report
        if store.exists():
            check_same_files(store, slide.files)
            if not fill:
                _ = read_root(store).source_sha256  # refuses
        with new_folder(store, resume_key=_resume_key(request, identity_of(slide), mpp, config)) as folder:
            if store.exists() and not is_unverified(store):
                raise LockedError(f"{store.name}: another process has just finished it. Run again to check it.")
            written = write_compared(folder, slide, slide_id, config, mpp, advance)
    keep_only(store, None)
    return report_of(slide_id, store, written, start)


@contextmanager
def opened(request: IngestRequest, config: IngestConfig, slide_id: str) -> Iterator[tuple[Slide, Mpp]]:
    """The slide, and the size of its pixels.

    Raises:
        MissingMppError, UnreadableError, NotBrightfieldRgbError, DecompressionBombError: it cannot be ingested.
    """
    with open_slide(request.path, request.series) as slide:
        refuse_label_in_image(slide.info, config.keep_associated, slide_id=slide_id)
        mpp = resolve_mpp(
            slide.info, slide_id=slide_id, manifest_mpp=request.mpp_manifest, option_mpp=request.mpp_option
        )
        yield slide, mpp


def is_unverified(store: Path) -> bool:
    """Whether a store is linked to a slide's file with which it has not been compared. Raises UnreadableError."""
    return read_root(store).is_unverified


def check_same_files(store: Path, files: tuple[Path, ...]) -> None:
    """Check that an unverified store points at these files.

    Raises:
        ChangedSourceError: at others. UnreadableError: its project does not say at which.
    """
    attributes = read_root(store)
    assert attributes.link is not None  # or it was verified
    linked = read_link(store, attributes.link.id).files
    if len(files) != len(linked) or not all(a.is_as(os.stat(b)) for a, b in zip(linked, files, strict=True)):
        raise ChangedSourceError(
            f"slide {attributes.slide_id}: its store {store} is linked to another file, or this one has changed since. "
            "Give the slide another `slide_id`, or delete the store."
        )


def report_of(slide_id: str, store: Path, written: Written, start: float) -> IngestReport:
    """What a new store is.

    Args:
        start: of the work, by `time.perf_counter`.
    """
    seconds = round(time.perf_counter() - start, 3)
    return IngestReport(
        slide_id, store, written.sha256, False, written.tissue_fraction, written.levels, seconds,
        damaged=written.damaged, warnings=written.warnings,
    )  # fmt: skip


def _resume_key(request: IngestRequest, identity: list[tuple[int, int, int]], mpp: Mpp, config: IngestConfig) -> str:
    """Key of everything that a store's bytes depend on: shards of a killed run count only under the same key."""
    settings = {"mpp0": mpp.mpp0, "ingest": config.model_dump(mode="json")}
    return json.dumps([CONTRACT_VERSION, request.slide_id, request.series, identity, settings, versions()])


def count_shards(array_dir: Path) -> int:
    """Shard files of one level's array; shards of nothing but white are not written."""
    return sum(1 for path in (array_dir / "c").rglob("*") if path.is_file())


def _check_complete(store: Path, attributes: SlideAttributes) -> None:
    """Refuse a store with missing shards: a reader would take them for white."""
    counts = [count_shards(store / IMAGE / level.path) for level in attributes.levels]
    if counts != attributes.ingest.get("shards"):
        raise UnreadableError(
            f"{store}: has {counts} shard files per level, but was written with {attributes.ingest.get('shards')}. "
            "The store is damaged; delete it and ingest the slide again."
        )


def _filled(report: IngestReport, start: float, advance: Advance) -> IngestReport:
    """Copy the tiles into a finished store that is linked."""
    if read_root(report.store).link is None:
        keep_only(report.store, None)  # a run that was killed may have left where the store pointed
        return report
    levels = fill_store(report.store, advance).levels
    return replace(report, skipped=False, levels=levels, seconds=round(time.perf_counter() - start, 3))


def _finished(store: Path, slide: Slide, mpp: Mpp, config: IngestConfig, start: float) -> IngestReport:
    """Skip a store made from the same bytes with the same settings, except for a missing mask; refuse anything else."""
    reader = StoreReader(store)
    attributes = reader.attributes
    sha256 = sha256_of_files(slide.files)
    changed = differences(_made_from(attributes), _key(sha256, slide.info.series, mpp, config))
    _check_same_bytes(reader, sha256)
    _check_same_series(reader, slide.info.series)
    if changed:
        raise ChangedSourceError(
            f"slide {reader.slide_id}: the store {store} was made with other settings ({', '.join(changed)}). "
            "Delete it to ingest again, or keep the old settings."
        )
    _check_complete(store, attributes)
    mask = make_missing_mask(reader, config.tissue)
    masked_with = settings_of_mask(reader)
    fraction = float(attributes.ingest.get("tissue_fraction", 0.0))
    seconds = round(time.perf_counter() - start, 3)
    return IngestReport(
        reader.slide_id, store, sha256, True, fraction, attributes.levels, seconds, mask_made=mask is not None,
        damaged=_stored_damage(attributes),
        other_mask=masked_with != config.tissue.model_dump(mode="json"),
        warnings=attributes.warnings,
    )  # fmt: skip


def _stored_damage(attributes: SlideAttributes) -> tuple[int, int] | None:
    damaged = attributes.ingest.get("damaged")
    return (damaged["tiles"], damaged["of"]) if damaged else None


def check_same_source(request: IngestRequest, store: Path) -> str:
    """Check that a store was made from the bytes of a slide, whatever the settings. Returns their SHA-256.

    Raises:
        ChangedSourceError: it was not. UnreadableError: the slide or the store.
    """
    with open_slide(request.path, request.series) as slide:
        sha256 = sha256_of_files(slide.files)
        reader = StoreReader(store)
        _check_same_bytes(reader, sha256)
        _check_same_series(reader, slide.info.series)
    return sha256


def _check_same_bytes(reader: StoreReader, sha256: str) -> None:
    stored = reader.source_sha256
    if stored != sha256:
        raise ChangedSourceError(
            f"slide {reader.slide_id}: the store {reader.path} was made from other bytes (SHA-256 {stored[:12]}…, now "
            f"{sha256[:12]}…). Give the slide another `slide_id`, or delete the store if the old file was wrong."
        )


def _check_same_series(reader: StoreReader, series: str | None) -> None:
    stored = reader.attributes.source.series
    if stored != series:
        raise ChangedSourceError(
            f"slide {reader.slide_id}: the store {reader.path} holds series {stored or '0'} of its file, but series "
            f"{series or '0'} was requested. Give each series of a file its own `slide_id`."
        )


def ingest_key(request: IngestRequest, config: IngestConfig) -> Key:
    """Key of everything that a slide's store depends on. Reads the whole file.

    Raises:
        GemslideError: the slide cannot be opened, or its pixel size is not stated anywhere.
    """
    slide_id = check_slide_id(request.slide_id, where=request.path.name)
    with open_slide(request.path, request.series) as slide:
        mpp = resolve_mpp(
            slide.info, slide_id=slide_id, manifest_mpp=request.mpp_manifest, option_mpp=request.mpp_option
        )
        return _key(sha256_of_files(slide.files), slide.info.series, mpp, config)


def stored_key(store: Path) -> Key | None:
    """Key that a store says it was made from; None if there is no store, or one that is damaged or incomplete."""
    try:
        reader = StoreReader(store)
        _check_complete(store, reader.attributes)
    except GemslideError:
        return None
    return _made_from(reader.attributes)


def _key(source_sha256: str, series: str | None, mpp: Mpp, config: IngestConfig) -> Key:
    settings = _pixel_settings(config)
    return {"source_sha256": source_sha256, "series": series, "mpp0": mpp.mpp0, "ingest": settings}


def _pixel_settings(config: IngestConfig) -> dict[str, Any]:
    """All settings but those of the tissue mask, which can be rebuilt by itself (`gemslide tissue`)."""
    return config.model_dump(mode="json", exclude={"tissue"})


def _made_from(attributes: SlideAttributes) -> Key:
    """Key that a store was made from. Settings that it does not know yet had their default when it was made."""
    settings = attributes.ingest.get("settings")
    with suppress(ValidationError):  # of another version: not these settings, whatever they are
        settings = _pixel_settings(IngestConfig.model_validate(settings))
    source = attributes.source
    return {"source_sha256": source.sha256, "series": source.series, "mpp0": attributes.mpp0, "ingest": settings}
