"""Counts and lists as people write them: "1 slide", "3 slides", "A, B, …"."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: float, singular: str, plural: str = "") -> str:
    """A number with its noun in the matching form, and with separators from 1,000 on.

    Args:
        number: a whole number, or a fraction, which is shortened to six digits.
        singular: the noun after 1; with its verb where the sentence continues ("slide is").
        plural: the noun after every other number; if empty, the singular with an s.
    """
    words = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,g} {words}" if isinstance(number, float) else f"{number:,} {words}"


def first_of(names: Sequence[object], most: int) -> str:
    """The first names of a list, with "…" where there are more."""
    return ", ".join(map(str, names[:most])) + (", …" if len(names) > most else "")
