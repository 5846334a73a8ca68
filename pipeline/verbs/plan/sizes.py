"""Sizes of memory, as typed after `--memory`."""

from __future__ import annotations

import re

from training.foundation.errors import BadRecipeError

PREFIXES = ("", "K", "M", "G", "T")
MOST_SIZE_BYTES = 10**18


def bytes_of(text: str) -> int:
    """Parse a size such as "16GiB" or "8 GB".

    Raises:
        BadRecipeError: not a size.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]?)(i?)B", text.strip(), re.IGNORECASE)
    size = 0.0
    if match:
        size = float(match[1]) * (1024 if match[3] else 1000) ** PREFIXES.index(match[2].upper())
    if not 1 <= size <= MOST_SIZE_BYTES:
        raise BadRecipeError(f"--memory {text!r:.40}: not a size. Give a number and a unit, such as 16GiB or 8GB.")
    return int(size)
