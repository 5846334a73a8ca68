"""The list of a store's files with their lengths and checksums, against which `gemslide verify` checks the store.

It covers what ingest wrote. Predictions, quality layers, features and attention come later and are replaced as wholes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pipeline.places.byte_source import read_file
from pipeline.places.object_path import ObjectPath, StorePath, below
from pipeline.store.format.layout import ATTENTION, CHECKSUMS, FEATURES, PREDICTIONS, QUALITY
from pipeline.store.format.metadata import read_json, write_json
from pipeline.store.format.shard import FileChecksum, sum_file
from training.foundation.reading import MAX_JSON_BYTES

_LATER = (PREDICTIONS, QUALITY, FEATURES, ATTENTION)


def covered_files(store: StorePath) -> list[str]:
    """Files of a store that the list must name, by path below it: all but the root's metadata and the list itself."""
    is_bucket = isinstance(store, ObjectPath)  # where all that is listed is an object
    names = (str(below(path, store)) for path in store.rglob("*") if is_bucket or path.is_file())
    own = ("zarr.json", CHECKSUMS)
    return sorted(n for n in names if n not in own and n.split("/")[0] not in _LATER and not _is_hidden(n))


def _is_hidden(name: str) -> bool:
    """Whether a path is hidden, like the files that operating systems leave in folders that people open."""
    return any(part.startswith(".") for part in name.split("/"))


def write_checksums(store: Path, known: Mapping[str, FileChecksum]) -> str:
    """Write the list; files that are not in `known` are read. Returns the list's own SHA-256."""
    files = {name: known.get(name) or sum_file(store / name) for name in covered_files(store)}
    entries = {name: [checksum.bytes, f"{checksum.crc32c:08x}"] for name, checksum in files.items()}
    write_json(store / CHECKSUMS, {"checksum": "crc32c", "files": entries})
    return list_digest(store)


def read_checksums(store: StorePath) -> dict[str, FileChecksum]:
    """The list as it was written. Raises OSError, ValueError."""
    try:
        entries = read_json(store / CHECKSUMS)["files"]
        return {str(name): FileChecksum(int(length), int(crc, 16)) for name, (length, crc) in entries.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{CHECKSUMS}: is not a list of checksums ({type(error).__name__}: {error})") from error


def list_digest(store: StorePath) -> str:
    """SHA-256 of the list itself, as in the root attribute."""
    return hashlib.sha256(read_file(store / CHECKSUMS, max_bytes=MAX_JSON_BYTES)).hexdigest()
