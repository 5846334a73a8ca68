"""Comparison of a store with the slide it was made from: its bytes, and a sample of its pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.box import Box
from pipeline.errors import ChangedSourceError, DamagedStoreError
from pipeline.files import sha256_of_files
from pipeline.ingest.damage.found import LevelDamage, damage_in_store
from pipeline.ingest.damage.masked import MaskedSlide
from pipeline.ingest.shards import halve
from pipeline.places.object_path import StorePath
from pipeline.slides.common.slide import NotCopied, Slide, one_stream, planes_of
from pipeline.slides.registry import open_slide
from pipeline.store.format.metadata import Level
from pipeline.store.integrity import find_damage, find_overlay_damage, sampled
from pipeline.store.layers.labels import MASK_AGAIN, has_tissue
from pipeline.store.reading.reader import StoreReader
from pipeline.store.reading.threads import CORES
from pipeline.units import described
from training.foundation.words.counts import counted

MAX_SHOWN = 5
REPLACE_OVERLAY = (
    "The slide itself is intact. Recreate damaged predictions and attention with `gemslide infer`, scores with "
    "`gemslide qc`, features with `gemslide embed` or `gemslide features import`."
)


def verify_store(
    store: StorePath,
    *,
    source: Path | None = None,
    series: str | None = None,
    sample_chunks: int = 64,
    every_chunk: bool = False,
) -> str:
    """Check a store and, given `source`, that it holds that slide. Returns a description of what was checked.

    Args:
        sample_chunks: chunks per level that are decoded and compared.
        every_chunk: decode all of them (still, only a sample is compared).

    Raises:
        DamagedStoreError: it is not as it was written; says what and where.
        WrongSlideError: its folder is named after another slide.
        ChangedSourceError: it was made from other bytes than `source` has.
        UnreadableError: it is not a store, or the source cannot be read.
    """
    faults = find_damage(store, sample_chunks=sample_chunks, every_chunk=every_chunk, threads=CORES)
    if not faults and source is not None:
        faults = _differences(StoreReader(store), source, series, sample_chunks)
    if faults and not has_tissue(store):
        raise DamagedStoreError(f"{store}: {_first(faults)}. It has no tissue mask: {MASK_AGAIN} Then verify it again.")
    if faults:
        raise DamagedStoreError(f"{store}: {_first(faults)}. Delete the store and ingest the slide again.")
    faults = find_overlay_damage(store)
    if faults:
        raise DamagedStoreError(f"{store}: {_first(faults)}. {REPLACE_OVERLAY}")
    decoded = "every chunk decoded" if every_chunk else f"{counted(sample_chunks, 'chunk')} per level decoded"
    return f"all files as written, {decoded}" + (", pixels equal the source's" if source else "")


def _first(faults: list[str]) -> str:
    more = f"; and {len(faults) - MAX_SHOWN} more" if len(faults) > MAX_SHOWN else ""
    return "; ".join(faults[:MAX_SHOWN]) + more


def _differences(reader: StoreReader, source: Path, series: str | None, sample_chunks: int) -> list[str]:
    attributes = reader.attributes
    stored = attributes.source.series or "#"
    with open_slide(source, series or (None if stored.startswith("#") else stored)) as slide:
        sha256 = sha256_of_files(slide.files)
        if sha256 != reader.source_sha256:
            raise ChangedSourceError(
                f"{reader.path}: was made from SHA-256 {reader.source_sha256[:12]}…, but {source.name} has "
                f"{sha256[:12]}…. Name the slide it was made from; or, if the slide was replaced, ingest it again."
            )
        if slide.info.planes_um != (attributes.planes_um or ()):
            return [f"its focal planes are {described(attributes.planes_um)}; the source's {len(slide.info.planes_um)}"]
        planes = zip(reader.planes(), planes_of(slide), strict=True)
        return [fault for stored, scanned in planes for fault in _unlike_plane(stored, scanned, sample_chunks)]


def _unlike_plane(reader: StoreReader, slide: Slide, sample_chunks: int) -> list[str]:
    """Differences of one focal plane."""
    faults, damage = [], damage_in_store(reader, slide)
    for level, metadata in enumerate(reader.attributes.levels):
        if metadata.route == "built":
            faults += _built_wrongly(reader, level, metadata, sample_chunks)
        elif metadata.quality is None:
            faults += _unlike_source(reader, level, MaskedSlide(slide, damage), damage[level], sample_chunks)
    at = "" if reader.plane_um is None else f"focal plane {reader.plane_um:g} µm, "
    return [f"{at}{fault}" for fault in faults]


def _unlike_source(reader: StoreReader, level: int, slide: Slide, damage: LevelDamage, sample_chunks: int) -> list[str]:
    """Chunks that differ from the slide without its damage; tiles made from the level before are not copies.

    A copied tile has the source's bytes. Only where it does not, pixels are compared.
    """
    array, faults = reader.levels[level], []
    t = array.chunk_px
    own = slide.encoded_level(level)
    for row, column in sampled(array.array.spec, sample_chunks):
        box = Box(column * t, row * t, t, t).within(array.width_px, array.height_px)
        if level and damage.touches(box):
            continue
        if (
            not isinstance(own, NotCopied)
            and own.tile_px == t
            and reader.chunk(level, row, column) == one_stream(own, row, column)
        ):
            continue
        if not np.array_equal(reader.read_region(level, box), slide.read_region(level, box)):
            faults.append(f"level {level}: pixels of the chunk in row {row}, column {column} are not the source's")
    return faults


def _built_wrongly(reader: StoreReader, level: int, metadata: Level, sample_chunks: int) -> list[str]:
    """Chunks that are not the means of the level before; lossy ones cannot be compared."""
    if metadata.codec != "zstd":
        return []
    array, parent, faults = reader.levels[level], reader.levels[level - 1], []
    t = array.chunk_px
    for row, column in sampled(array.array.spec, sample_chunks):
        box = Box(column * t, row * t, t, t).within(array.width_px, array.height_px)
        taken = Box(*(2 * number for number in box)).within(parent.width_px, parent.height_px)
        if not np.array_equal(reader.read_region(level, box), halve(reader.read_region(level - 1, taken))):
            faults.append(
                f"level {level}: the chunk in row {row}, column {column} is not the mean of level {level - 1}"
            )
    return faults
