"""Checksums for the chunks of a store that an earlier version wrote: the same streams, each followed by its CRC-32C."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pipeline.errors import LockedError
from pipeline.files import new_folder, write_bytes_atomic
from pipeline.store.array_reader import ArrayReader
from pipeline.store.checksums import write_checksums
from pipeline.store.inside import check_inside
from pipeline.store.integrity import WITH_CHUNK_CHECKSUMS, image_arrays
from pipeline.store.layout import CHECKSUM_CODEC, CHECKSUMS, CONTRACT_VERSION, LABELS, PREDICTIONS, QUALITY
from pipeline.store.metadata import read_json, write_json
from pipeline.store.plain_array import PlainArray, array_names
from pipeline.store.reader import StoreReader
from pipeline.store.shard import FileChecksum, with_checksum, write_shard
from pipeline.store.threads import CORES, parallel_for

_NO_HARD_LINKS = {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
Files = dict[str, tuple[int, int, int]]
"""Inode, length and time of change, by path below the store."""


def add_checksums(store: Path) -> bool:
    """Rewrite a store that was verified before, without decoding it; False where its chunks have checksums already.

    The new store is written beside the old one and takes its place in one step; until then the old one is whole.

    Raises:
        UnreadableError, CorruptTileError: a part of the old store cannot be read.
        LockedError: it was written to meanwhile. DiskFullError: no space for a second copy, or not writable.
    """
    reader = StoreReader(store)
    if reader.attributes.contract_version >= WITH_CHUNK_CHECKSUMS:
        return False
    before = _files(store)

    def refuse_if_changed() -> None:
        if _files(store) != before:
            raise _busy(store)

    with new_folder(store, before_swap=refuse_if_changed) as folder:
        known: dict[str, FileChecksum] = {}
        for name, array in image_arrays(reader).items():
            if not array.spec.has_checksums:
                known |= _rewrite_shards(array, folder / name, name)
        for group in (LABELS, PREDICTIONS, QUALITY):
            for name in array_names(store, group):
                _rewrite_chunks(PlainArray.open(store, name), folder / name)
        _link_the_rest(store, folder, before)
        _finish(store, folder, known)
    return True


def _files(store: Path) -> Files:
    """All files of a store but those that systems hide in folders.

    Raises:
        LockedError: predictions or scores are being written into it.
    """
    found: Files = {}
    for path in sorted(store.rglob("*")):
        name = path.relative_to(store)
        if path.name.startswith(".") and path.name.endswith((".partial", ".swap")):
            raise _busy(store)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            stat = path.stat()
            found[str(name)] = stat.st_ino, stat.st_size, stat.st_mtime_ns
    return found


def _busy(store: Path) -> LockedError:
    return LockedError(
        f"{store.name}: another process writes to it while checksums are added. Wait for it to end, and run again."
    )


def _rewrite_shards(array: ArrayReader, folder: Path, name: str) -> dict[str, FileChecksum]:
    """An array with the same streams and their checksums; a shard that is missing stays missing."""
    spec, written = replace(array.spec, has_checksums=True), {}

    def rewrite(shard_row: int, shard_column: int) -> None:
        key = spec.shard_key(shard_row, shard_column)
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        found = write_shard(folder / key, _streams(array, shard_row, shard_column))
        if found is not None:
            written[f"{name}/{key}"] = found

    parallel_for(rewrite, itertools.product(range(spec.shard_rows), range(spec.shard_columns)), CORES)
    write_json(folder / "zarr.json", spec.to_zarr_json())
    return written


def _streams(array: ArrayReader, shard_row: int, shard_column: int) -> Iterator[tuple[bytes, ...]]:
    """A shard's chunks in C order; () outside the grid and where the array has none."""
    n, spec = array.spec.shard_chunks, array.spec
    rows, columns = (range(at * n, at * n + n) for at in (shard_row, shard_column))
    for row, column in itertools.product(rows, columns):
        stream = array.chunk(row, column) if row < spec.rows and column < spec.columns else None
        yield () if stream is None else (stream,)


def _rewrite_chunks(array: PlainArray, folder: Path) -> None:
    """A small array with the same streams and their checksums."""
    meta = read_json(array.path / "zarr.json")
    if not array.has_checksums:
        meta["codecs"].append(CHECKSUM_CODEC)
    for position in array.positions():
        stream = array.stored_chunk(position)
        if stream is not None:
            path = folder / array.chunk_path(position).relative_to(array.path)
            write_bytes_atomic(path, b"".join(with_checksum([stream])))
    write_json(folder / "zarr.json", meta)


def _link_the_rest(store: Path, folder: Path, files: Files) -> None:
    """All other files as they are: metadata of groups, the OME-XML. Shards and chunks are there by now."""
    real_store = os.path.realpath(store)
    arrays = {path.parent for path in folder.rglob("zarr.json")}
    for name in files:
        target = folder / name
        if name in ("zarr.json", CHECKSUMS) or arrays & {target.parent, *target.parents}:
            continue
        check_inside(store / name, real_store)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(store / name, target, follow_symlinks=True)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            shutil.copyfile(store / name, target)


def _finish(store: Path, folder: Path, known: dict[str, FileChecksum]) -> None:
    """The new list of checksums, and the root, which says that the store is complete."""
    digest = write_checksums(folder, known)
    root = read_json(store / "zarr.json")
    ours = root["attributes"]["gemslide"]
    ours["contract_version"] = CONTRACT_VERSION
    ours["ingest"]["checksums_sha256"] = digest
    write_json(folder / "zarr.json", root)
