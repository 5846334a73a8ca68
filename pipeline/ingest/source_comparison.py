"""A store against the slide it was made from: its bytes, and a sample of its pixels."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from pipeline.box import Box
from pipeline.errors import ChangedSourceError, DamagedStoreError
from pipeline.files import sha256_of_files
from pipeline.ingest.damage import LevelDamage, damage_in_store
from pipeline.ingest.masked import MaskedSlide
from pipeline.ingest.shards import halve
from pipeline.slides.openslide.reader import VendorSlide
from pipeline.slides.registry import open_slide
from pipeline.slides.slide import Slide
from pipeline.store.integrity import WITH_CHUNK_CHECKSUMS, WITH_LIST, find_damage, find_overlay_damage, sampled
from pipeline.store.labels import MASK_AGAIN, has_tissue
from pipeline.store.metadata import Level
from pipeline.store.reader import StoreReader
from pipeline.store.threads import CORES

MAX_SHOWN = 5
REPLACE_OVERLAY = (
    "The slide itself is whole. Make damaged predictions again with `gemslide infer`, scores with `gemslide qc`."
)


def verify_store(
    store: Path,
    *,
    source: Path | None = None,
    series: str | None = None,
    sample_chunks: int = 64,
    every_chunk: bool = False,
) -> str:
    """Check a store, and with `source` that it holds that slide. Returns a description of what was checked.

    Args:
        sample_chunks: chunks per level that are decoded and compared.
        every_chunk: decode all of them (those compared stay a sample).

    Raises:
        DamagedStoreError: it is not as it was written; says what and where.
        WrongSlideError: its folder is named after another slide.
        ChangedSourceError: it was made from other bytes than `source` has.
        UnreadableError: it is no store, or the source cannot be read.
    """
    found = find_damage(store, sample_chunks=sample_chunks, every_chunk=every_chunk, threads=CORES)
    if not found and source is not None:
        found = _differences(StoreReader(store), source, series, sample_chunks)
    if found and not has_tissue(store):
        raise DamagedStoreError(f"{store}: {_first(found)}. It has no tissue mask: {MASK_AGAIN} Then verify it again.")
    if found:
        raise DamagedStoreError(f"{store}: {_first(found)}. Delete the store and ingest the slide again.")
    found = find_overlay_damage(store)
    if found:
        raise DamagedStoreError(f"{store}: {_first(found)}. {REPLACE_OVERLAY}")
    version = StoreReader(store).attributes.contract_version
    is_every = every_chunk or version < WITH_LIST
    decoded = "every chunk decoded" if is_every else f"{sample_chunks} chunks per level decoded"
    checked = decoded if version < WITH_LIST else f"all files as written, {decoded}"
    return checked + (", pixels equal the source's" if source else "") + _without_checksums(version)


def _first(found: list[str]) -> str:
    more = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
    return "; ".join(found[:MAX_SHOWN]) + more


def _without_checksums(version: int) -> str:
    """A remark on a store of an earlier version of the contract."""
    if version >= WITH_CHUNK_CHECKSUMS:
        return ""
    lacking = "its chunks have no" if version >= WITH_LIST else "neither its files nor its chunks have"
    return f"; {lacking} checksums (contract version {version}): add them with `gemslide verify --add-checksums`"


def _differences(reader: StoreReader, source: Path, series: str | None, sample_chunks: int) -> list[str]:
    attributes = reader.attributes
    with ExitStack() as opened:
        slide = opened.enter_context(open_slide(source, series))
        sha256 = sha256_of_files(slide.files)
        if sha256 != reader.source_sha256:
            raise ChangedSourceError(
                f"{reader.path}: was made from SHA-256 {reader.source_sha256[:12]}…, but {source.name} has "
                f"{sha256[:12]}…. Name the slide it was made from; or, if the slide was replaced, ingest it again."
            )
        found, damage = [], damage_in_store(reader, slide)
        for level, about in enumerate(attributes.levels):
            if about.route == "built":
                found += _built_wrongly(reader, level, about, sample_chunks)
            elif about.quality is None:
                path = slide.openslide_file if _openslide_decides(about) else None
                decoder = opened.enter_context(VendorSlide(path, every_level=True)) if path else slide
                found += _unlike_source(reader, level, MaskedSlide(decoder, damage), damage[level], sample_chunks)
        return found


def _openslide_decides(about: Level) -> bool:
    """Whether ingest took OpenSlide's reading of a level whose file contradicts itself."""
    gate = about.gate
    return gate is not None and not gate.equal and gate.tiles > 0 and gate.against.startswith("openslide")


def _unlike_source(reader: StoreReader, level: int, slide: Slide, damage: LevelDamage, sample_chunks: int) -> list[str]:
    """Chunks that differ from the slide without its damage; what was made from the level before is no copy."""
    array, found = reader.levels[level], []
    t = array.chunk_px
    for row, column in sampled(array.array.spec, sample_chunks):
        box = Box(column * t, row * t, t, t).within(array.width_px, array.height_px)
        if level and damage.touches(box):
            continue
        if not np.array_equal(reader.read_region(level, box), slide.read_region(level, box)):
            found.append(f"level {level}: pixels of the chunk in row {row}, column {column} are not the source's")
    return found


def _built_wrongly(reader: StoreReader, level: int, about: Level, sample_chunks: int) -> list[str]:
    """Chunks that are not the means of the level before; lossy ones cannot be compared."""
    if about.codec != "zstd":
        return []
    array, parent, found = reader.levels[level], reader.levels[level - 1], []
    t = array.chunk_px
    for row, column in sampled(array.array.spec, sample_chunks):
        box = Box(column * t, row * t, t, t).within(array.width_px, array.height_px)
        taken = Box(*(2 * number for number in box)).within(parent.width_px, parent.height_px)
        if not np.array_equal(reader.read_region(level, box), halve(reader.read_region(level - 1, taken))):
            found.append(f"level {level}: the chunk in row {row}, column {column} is not the mean of level {level - 1}")
    return found
