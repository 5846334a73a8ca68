"""A linked store made full: its pointers become copies of the tiles, and everything else stays."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

from pipeline.codecs.types import Stream
from pipeline.files import new_folder
from pipeline.ingest.routes import PASS_THROUGH
from pipeline.store.format.checksums import write_checksums
from pipeline.store.format.layout import IMAGE, POINTERS
from pipeline.store.format.metadata import SlideAttributes, read_json, write_group, write_json
from pipeline.store.format.shard import FileChecksum, chunks_in_order, write_shard
from pipeline.store.links.links_file import keep_only
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import StoreReader
from pipeline.store.reading.threads import CORES, parallel_for
from training.foundation.errors import LockedError
from training.foundation.progress import Advance


def fill_store(store: Path, advance: Advance) -> SlideAttributes:
    """Copy a verified store's tiles into it. Returns its new attributes.

    Every chunk is compared with the CRC-32C that it had when the link was verified.

    Raises:
        CorruptTileError, SourceGoneError, ChangedSourceError: the slide's file is not what it was.
        LockedError: something else changed the store meanwhile. DiskFullError.
    """
    reader = StoreReader(store)
    assert reader.attributes.link is not None  # callers have checked
    linked = [reader.levels[level].array for level in reader.attributes.link.levels]
    before = _state(store)
    with new_folder(store, before_swap=lambda: _check_unchanged(store, before)) as folder:
        pointers = {array.path for array in linked}
        shutil.copytree(
            store, folder, dirs_exist_ok=True, ignore=lambda path, names: names if Path(path) in pointers else ()
        )
        (folder / POINTERS).unlink()
        sums: dict[str, FileChecksum] = {}
        for array in linked:
            sums |= _copy(array, folder / IMAGE / array.path.name, advance)
        attributes = _as_full(reader.attributes, write_checksums(folder, sums))
        ome = read_json(store / "zarr.json")["attributes"]
        write_group(folder, {**ome, "gemslide": attributes.model_dump(mode="json")})
    keep_only(store, None)
    return attributes


def _copy(array: ArrayReader, folder: Path, advance: Advance) -> dict[str, FileChecksum]:
    """Write a level's array with its chunks. Returns its shards' checksums by path below the store."""
    spec = replace(array.spec, link=None)
    sums: dict[str, FileChecksum] = {}
    advance.expect(spec.shard_rows * spec.shard_columns)
    for shard_row in range(spec.shard_rows):
        (folder / spec.shard_key(shard_row, 0)).parent.mkdir(parents=True, exist_ok=True)

    def streams(row: int, columns: range) -> list[Stream]:
        return [() if chunk is None else (chunk,) for chunk in array.chunks(row, columns)]

    def copy(shard_row: int, shard_column: int) -> None:
        key = spec.shard_key(shard_row, shard_column)
        cells = spec.cells_of_shard(shard_row, shard_column)
        written = write_shard(folder / key, chunks_in_order(spec.shard_chunks, *cells, streams))
        if written is not None:
            sums[f"{IMAGE}/{folder.name}/{key}"] = written
        advance(1)

    parallel_for(copy, product(range(spec.shard_rows), range(spec.shard_columns)), CORES)
    write_json(folder / "zarr.json", spec.to_zarr_json())
    return sums


def _as_full(attributes: SlideAttributes, checksums_sha256: str) -> SlideAttributes:
    assert attributes.link is not None  # callers have checked
    levels = tuple(
        level.model_copy(update={"route": PASS_THROUGH}) if index in attributes.link.levels else level
        for index, level in enumerate(attributes.levels)
    )
    ingest = {**attributes.ingest, "checksums_sha256": checksums_sha256}
    return attributes.model_copy(update={"levels": levels, "link": None, "ingest": ingest})


def _state(store: Path) -> dict[str, tuple[int, int, int]]:
    """Every file of a store, and what changes when it is written again."""
    files = ((path, path.stat()) for path in sorted(store.rglob("*")) if path.is_file())
    return {str(path.relative_to(store)): (status.st_size, status.st_mtime_ns, status.st_ino) for path, status in files}


def _check_unchanged(store: Path, before: dict[str, tuple[int, int, int]]) -> None:
    if _state(store) != before:
        raise LockedError(f"{store.name}: something was written into it while its tiles were copied. Run again.")
