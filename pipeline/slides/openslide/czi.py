"""Prescan of the directory of a Zeiss CZI: OpenSlide aborts the process on a tile that claims too much.

Source of the layout: Zeiss's published description of CZI (ZISRAW segments).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.limits import MAX_TILE_BYTES
from pipeline.slides.common.reading import disk_errors, read_at
from training.foundation.errors import DecompressionBombError, UnreadableError

_SEGMENT_BYTES = 32
_DIRECTORY_AT, _ATTACHMENTS_AT = 52, 72
"""Positions, in the file header's content, of the pointers to both directories."""
_DIRECTORY_HEAD, _ATTACHMENT_HEAD, _ATTACHMENT_ENTRY, _EMBEDDED_AT = 128, 256, 128, 256
_ENTRY_HEAD, _DIMENSION_BYTES, _MAX_DIMENSIONS = 32, 20, 40
_MAX_ENTRIES, _MAX_ATTACHMENTS = 2_000_000, 100
_MAX_BYTES_PER_PIXEL = 4
"""OpenSlide decodes three bytes and shows four."""
_MAX_SIDE_PX = 2**26


def check_czi(path: Path) -> None:
    """Refuse a CZI whose tiles claim more pixels than one can have.

    Raises:
        DecompressionBombError: one does. UnreadableError: the directory cannot be read.
    """
    with disk_errors(path.name), path.open("rb") as stream:
        file = _Bytes(stream.fileno(), path.name)
        try:
            _check_at(file, 0)
            for at in _attachments(file):
                if file.read(at, 10) == b"ZISRAWFILE":
                    _check_at(file, at)
        except DamagedFileError as error:
            raise UnreadableError(f"{path.name}: {error}. The file is damaged; copy it again.") from error


class _Bytes:
    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor, self.name = descriptor, name
        self.length = os.fstat(descriptor).st_size

    def read(self, at: int, count: int) -> bytes:
        if at < 0 or count < 0 or at + count > self.length:
            raise DamagedFileError(f"its directory points to byte {at + count}, but it ends at {self.length}")
        return read_at(self.descriptor, count, at, self.name)

    def number(self, at: int, kind: str) -> int:
        """One number in the file: "i" of 4 bytes, "q" of 8."""
        (number,) = struct.unpack(f"<{kind}", self.read(at, struct.calcsize(f"<{kind}")))
        return int(number)


def _check_at(file: _Bytes, start: int) -> None:
    """Check a CZI, or one embedded in another, from its first byte on."""
    at = start + file.number(start + _SEGMENT_BYTES + _DIRECTORY_AT, "q") + _SEGMENT_BYTES
    count = file.number(at, "i")
    if not 0 <= count <= _MAX_ENTRIES:
        raise DecompressionBombError(f"{file.name}: claims {count} tiles. The header is damaged.")
    at += _DIRECTORY_HEAD
    for _ in range(count):
        at = _check_entry(file, start, at)


def _check_entry(file: _Bytes, start: int, at: int) -> int:
    """Check one tile's entry. Returns the position of the next."""
    num_dimensions = file.number(at + _ENTRY_HEAD - 4, "i")
    if not 0 <= num_dimensions <= _MAX_DIMENSIONS:
        raise DamagedFileError(f"a tile of {num_dimensions} dimensions")
    file.read(start + file.number(at + 6, "q"), _SEGMENT_BYTES)
    num_bytes = _MAX_BYTES_PER_PIXEL
    content = file.read(at + _ENTRY_HEAD, num_dimensions * _DIMENSION_BYTES)
    for name, first, size, _, stored in struct.iter_unpack("<4siifi", content):
        if name.rstrip(b"\0") not in (b"X", b"Y"):
            continue
        if min(size, stored) < 1 or max(size, stored, abs(first)) > _MAX_SIDE_PX:
            raise DamagedFileError(f"a tile of {size} px, stored as {stored} px, at {first}")
        num_bytes *= stored
    if num_bytes > MAX_TILE_BYTES:
        raise DecompressionBombError(
            f"{file.name}: a tile of {num_bytes >> 20} MiB; at most {MAX_TILE_BYTES >> 20} MiB are read."
        )
    return at + _ENTRY_HEAD + len(content)


def _attachments(file: _Bytes) -> Iterator[int]:
    """Positions of the attachments, including label and preview."""
    directory_at = file.number(_SEGMENT_BYTES + _ATTACHMENTS_AT, "q")
    if directory_at <= 0:
        return
    at = directory_at + _SEGMENT_BYTES
    count = file.number(at, "i")
    if not 0 <= count <= _MAX_ATTACHMENTS:
        raise DamagedFileError(f"it claims {count} attachments")
    for index in range(count):
        entry_at = at + _ATTACHMENT_HEAD + index * _ATTACHMENT_ENTRY
        yield file.number(entry_at + 12, "q") + _SEGMENT_BYTES + _EMBEDDED_AT
