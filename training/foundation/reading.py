"""Reading of files that may come from others: regular files only, of bounded size, and JSON of bounded depth."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

MAX_JSON_BYTES = 64 * 2**20
"""Limit for a zarr.json, a package's or a project's JSON file. The largest item in one is an ICC profile in base64."""
MAX_DIGITS = 20
"""Limit for a whole number: as many as 64 bits hold."""


def open_regular(path: Path | str) -> int:
    """Descriptor of a regular file, opened for reading. A named pipe or a device is refused, not waited for.

    Raises:
        OSError: missing, not readable, or not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def read_regular(path: Path | str, *, max_bytes: int) -> bytes:
    """All bytes of a regular file.

    Raises:
        OSError: missing, not readable, not a regular file, or longer than `max_bytes`.
    """
    with open(open_regular(path), "rb") as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EINVAL, f"longer than {max_bytes} bytes", str(path))
    return data


def parse_json(text: str | bytes) -> Any:
    """A JSON text as Python values.

    Raises:
        ValueError: not JSON, not UTF-8, nested too deeply, a number that is infinite or has too many digits, or a key
            that appears twice in one object: parsers differ in which of its values they use.
    """
    try:
        return json.loads(
            text, parse_int=_integer, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_unique_keys
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the key {twice!r:.80} appears twice in one object")
    return values


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    """Parse a finite number or NaN, which stands for a missing score."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text:.40} is infinite")
    return number


def read_json_file(path: Path | str, *, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """The content of a JSON file.

    Raises:
        OSError, ValueError: as `read_regular` and `parse_json`.
    """
    return parse_json(read_regular(path, max_bytes=max_bytes))
