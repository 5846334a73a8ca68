"""A FeatureCollection as a stream: one feature per line, so that it is never in memory as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.export.common.target import new_file
from training.foundation.reading import open_regular, parse_json

_HEAD, _TAIL = b'{"type":"FeatureCollection","features":[\n', b"\n]}\n"
_MAX_LINE_BYTES = 64 * 2**20
"""Even a single contour around a whole slide of cells is shorter."""


def write_collection(path: Path, blocks: Iterable[Sequence[str]]) -> None:
    """Write features, each the text of one JSON object, block by block.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    with new_file(path) as stream:
        stream.write(_HEAD)
        separator = b""
        for lines in blocks:
            if lines:
                stream.write(separator + ",\n".join(lines).encode())
                separator = b",\n"
        stream.write(_TAIL)


def read_collection(path: Path) -> Iterator[Any]:
    """The features of a file written by `write_collection`, one by one.

    Raises:
        OSError: it cannot be read. ValueError: another layout, cut short, or not JSON.
    """
    with os.fdopen(open_regular(path), "rb") as stream:
        if stream.readline(len(_HEAD) + 1) != _HEAD:
            raise ValueError("does not begin as written")
        line = stream.readline(_MAX_LINE_BYTES)
        while line.startswith(b"{"):
            yield parse_json(line.rstrip(b",\n"))
            line = stream.readline(_MAX_LINE_BYTES)
        if line.strip() and line + stream.read(8) != _TAIL[1:]:
            raise ValueError("does not end as written")
        if not line:
            raise ValueError("is cut short")
