"""Reasons and questions: texts that the log keeps, and that must say something."""

from __future__ import annotations

import unicodedata

from pipeline.errors import BadManifestError

_UNSEEN = ("C", "M", "Z")
"""Categories of characters that show nothing by themselves: controls, marks, blanks."""


def is_blank(text: str) -> bool:
    """Whether nothing in a text can be seen: also blanks without a width, and Braille's empty cell, count as none."""
    return all(unicodedata.category(each)[0] in _UNSEEN or each in "\u2800\u3164\u115f\u1160\uffa0" for each in text)


def check_reason(why: str, what: str) -> None:
    """Refuse a reason that says nothing, before anything is changed.

    Args:
        what: is to be done, for the message: "an amendment".

    Raises:
        BadManifestError: nothing can be seen in it.
    """
    if is_blank(why):
        raise BadManifestError(f"{what} needs its reason, got {why!r:.100}: say in --why what the log is to keep.")
