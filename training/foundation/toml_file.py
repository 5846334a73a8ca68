"""Reading of TOML that may come from others: bounded in size and depth, with whole numbers in TOML's range."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from training.foundation.reading import read_regular

MAX_TOML_BYTES = 2**18
"""Settings and recipes take a few kB."""
MAX_DEPTH = 16
# The start of a key of more parts than that, such as `a.a.a` = 1: tomllib's time grows with the square of their number.
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_KEY = re.compile(rf"(?:^|[{{,])[ \t\[]*(?:{_PART}[ \t]*\.[ \t]*){{{MAX_DEPTH}}}", re.MULTILINE)


def read_toml(path: Path | str, *, max_bytes: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        OSError: missing, not readable, not a regular file, or longer than `max_bytes`.
        ValueError: not UTF-8, not TOML, nested too deeply, or a whole number of more than 64 bits.
    """
    text = read_regular(path, max_bytes=max_bytes).decode()
    if _LONG_KEY.search(text):
        raise ValueError(f"a key of more than {MAX_DEPTH} parts")
    try:
        content = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    _check_values(content)
    return content


def _check_values(content: dict[str, Any]) -> None:
    """Refuse values that later code could not handle."""
    waiting: list[tuple[Any, int]] = [(content, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"a whole number of {value.bit_length()} bits; at most 64 are supported")
        if isinstance(value, dict | list):
            waiting += [(item, depth + 1) for item in (value.values() if isinstance(value, dict) else value)]
