"""Reading of files that may come from others: regular files only, of bounded size, and JSON of bounded depth."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

MAX_JSON_BYTES = 64 * 2**20
"""Limit for a zarr.json, a package's or a project's JSON file. The largest item in one is an ICC profile in base64."""
MAX_DIGITS = 20
"""Limit for a whole number: as many as 64 bits hold."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Halves of surrogate pairs in a JSON text, escaped or not. Two escaped halves may make one character."""


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
        ValueError: not JSON, not Unicode, nested too deeply, a number that is infinite or has too many digits, half of
            a surrogate pair, which no file or database can store, or a key that appears twice in one object: parsers
            differ in which of its values they use.
    """
    # Decoded here, since `json.loads` would let encoded halves of surrogate pairs pass.
    text = text if isinstance(text, str) else text.decode(json.detect_encoding(text))
    try:
        values = json.loads(
            text, parse_int=_integer, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_unique_keys
        )
        if _SURROGATE.search(text):
            _check_storable(values)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return values


def _check_storable(values: Any) -> None:
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        found = error.object[error.start]
        raise ValueError(f"a text contains {found!r}, half of a surrogate pair, which is no character") from error


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
