"""Reading a slide file's bytes by position, with the errors of a network disk explained; and its first bytes."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.foundation.errors import UnreadableError

_DISK_FAILURES = {
    errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN,
    errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH,
}  # fmt: skip
"""Error numbers of a failing disk or network; other numbers can come from a damaged file's claims."""


def read_at(descriptor: int, count: int, offset: int, name: str) -> bytes:
    """`count` bytes of an open file from `offset`; fewer at its end.

    Raises:
        UnreadableError: the disk or the network fails.
    """
    try:
        return os.pread(descriptor, count, offset)
    except OSError as error:
        raise _disk_failed(f"{name}: cannot be read at byte {offset}", error) from error


@contextmanager
def disk_errors(name: str) -> Iterator[None]:
    """Guard a library call that reads the file itself. Other errors, including those of a damaged file, pass through.

    Raises:
        UnreadableError: the disk or the network fails, or the file may not be read.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise UnreadableError(f"{name}: cannot be read ({error.strerror}). Check its permissions.") from error
        if error.errno not in _DISK_FAILURES:
            raise
        raise _disk_failed(f"{name}: cannot be read", error) from error


def _disk_failed(what: str, error: OSError) -> UnreadableError:
    return UnreadableError(
        f"{what} ({error.strerror}). The disk or the network failed; "
        "try again, or copy the slide to a local disk first."
    )


class PositionedFile(io.RawIOBase):
    """A file that is read by position, for libraries that need a stream. Appears to end at `stop_at`, if that is set.

    Raises:
        UnreadableError: on reading, where the disk or the network fails.
    """

    def __init__(self, path: Path, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self._at = 0
        self.name = path.name
        """Required of every stream by pydicom."""
        with disk_errors(path.name):
            self._descriptor = os.open(path, os.O_RDONLY)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = len(buffer)
        if self.stop_at is not None:
            count = min(count, max(0, self.stop_at - self._at))
        data = read_at(self._descriptor, count, self._at, self.name)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._descriptor).st_size}[whence]
        if not 0 <= start + offset < 2**63:
            raise ValueError(f"a position at byte {start + offset}")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def is_dicom(path: Path) -> bool:
    """Whether a file has DICOM's magic bytes after its preamble. Raises UnreadableError if the disk fails."""
    return first_bytes(path, 132)[128:] == b"DICM"


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file; fewer if it is shorter.

    Raises:
        UnreadableError: the disk or the network fails, or the file may not be read.
    """
    with disk_errors(path.name), path.open("rb") as stream:
        return stream.read(count)
