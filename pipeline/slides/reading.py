"""Reading a slide file's bytes: by position, with the errors of a network disk in words; and a first look at them."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.errors import UnreadableError


def read_at(descriptor: int, count: int, offset: int, name: str) -> bytes:
    """`count` bytes of an open file from `offset`; fewer at its end.

    Raises:
        UnreadableError: the disk or the network fails.
    """
    try:
        return os.pread(descriptor, count, offset)
    except OSError as error:
        raise UnreadableError(
            f"{name}: cannot be read at byte {offset} ({error.strerror}). The disk or the network failed; "
            "try again, or copy the slide to a local disk first."
        ) from error


def is_dicom(path: Path) -> bool:
    """Whether a file has DICOM's mark behind its preamble."""
    with path.open("rb") as stream:
        return stream.read(132)[128:] == b"DICM"
