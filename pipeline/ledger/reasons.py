"""Reasons and questions: texts that the log keeps and that must not be blank."""

from __future__ import annotations

import unicodedata

from pipeline.errors import BadManifestError

_UNSEEN = ("C", "M", "Z")
"""Categories of characters that are invisible by themselves: controls, marks, spaces."""


def is_blank(text: str) -> bool:
    """Whether a text has nothing visible: zero-width spaces and the blank Braille cell are not visible either."""
    return all(
        unicodedata.category(letter)[0] in _UNSEEN or letter in "\u2800\u3164\u115f\u1160\uffa0" for letter in text
    )


def check_reason(why: str, what: str) -> None:
    """Refuse a blank reason, before anything is changed.

    Args:
        what: the action, for the message: "an amendment".

    Raises:
        BadManifestError: the reason is blank.
    """
    if is_blank(why):
        raise BadManifestError(f"{what} needs a reason, got {why!r:.100}: state in --why what the log should record.")
