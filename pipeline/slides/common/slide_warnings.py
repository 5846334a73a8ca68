"""Warnings to know before relying on a slide's pixels, collected while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

SizeWh = tuple[int, int]


class SlideWarnings:
    """Clauses that each follow "slide S-1: " and never name the file. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._levels_of: dict[str, set[SizeWh]] = {}

    def add(self, clause: str, level_wh_px: SizeWh | None = None) -> None:
        """Keep a clause, once however often it is added.

        Args:
            level_wh_px: size of the level it applies to; None for the whole slide.
        """
        with self._lock:
            self._levels_of.setdefault(clause, set()).update({level_wh_px} if level_wh_px else ())

    def __iter__(self) -> Iterator[str]:
        """In a fixed order, whichever thread came first; each with its levels, finest first."""
        with self._lock:
            clauses = sorted((clause, sorted(levels, reverse=True)) for clause, levels in self._levels_of.items())
        for clause, levels in clauses:
            sizes = ", ".join(f"{width_px}×{height_px} px" for width_px, height_px in levels)
            yield f"{clause} (level{'s' if len(levels) > 1 else ''} of {sizes})" if levels else clause
