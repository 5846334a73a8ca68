"""An NGFF 0.5 copy as one file, `.ozx`: a zip archive whose entries are stored, not compressed (NGFF RFC-9)."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_COMMENT = {"ome": {"version": "0.5", "zipFile": {"centralDirectory": {"jsonFirst": True}}}}
"""Says that the metadata come first, so that a reader may stop there."""
_METADATA = "zarr.json"
_PIECE_BYTES = 2**20


@contextmanager
def folder_beside(final: Path) -> Iterator[Path]:
    """A folder beside a file that is being written, deleted afterwards; the remains of a crashed run are replaced.

    Use it while `new_file` has the file locked.
    """
    folder = final.with_name(f".{final.name}.unzipped")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def move_into_zip(folder: Path, stream: BinaryIO) -> None:
    """Write a folder's files into an archive, each deleted as soon as it is there.

    Metadata come first, those nearest the root before others. Entries bear no date, so that copies are equal.
    """
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names.sort(key=lambda name: (name.name != _METADATA, len(name.parts)))
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = json.dumps(_COMMENT).encode()
        for name in names:
            with (folder / name).open("rb") as source, archive.open(_entry(name), "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, _PIECE_BYTES)
            (folder / name).unlink()


def _entry(name: Path) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name.as_posix())
    entry.external_attr = 0o644 << 16
    return entry
