"""Misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """Known words that a misspelt one may stand for, the likeliest first; empty if none is near."""
    return difflib.get_close_matches(word, sorted(known), n=most)
