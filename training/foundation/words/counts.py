"""Numbers of things, as people say them: "1 slide", "3 slides"."""

from __future__ import annotations


def counted(number: float, singular: str, plural: str = "") -> str:
    """A number with what it counts, in the form that goes with it, and with separators from 1,000 on.

    Args:
        number: a whole number, or a fraction, which is shortened to six digits.
        singular: what stands behind 1; with its verb where a sentence goes on ("slide is").
        plural: what stands behind every other number; empty: the singular with an s.
    """
    words = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,g} {words}" if isinstance(number, float) else f"{number:,} {words}"
