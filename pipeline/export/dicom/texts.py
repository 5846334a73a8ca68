"""Texts as DICOM's value representations allow them."""

from __future__ import annotations

import unicodedata

LONG_TEXT, SHORT_TEXT = 64, 16
"""Maximum lengths of DICOM's LO and SH, in characters."""


def plain_text(text: str, most: int) -> str:
    """Text without control characters and without backslashes, which would begin a second value.

    Args:
        most: characters that are kept.
    """
    plain = "".join(" " if unicodedata.category(character) == "Cc" else character for character in text)
    return plain.replace("\\", "/").strip()[:most].strip()
