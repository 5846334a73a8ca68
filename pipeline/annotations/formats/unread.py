"""Attributes and properties that a reader does not read: refused if they could change a label, else noted."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.errors import BadAnnotationError
from training.foundation.words.counts import counted

MAX_NOTES = 8
_CLASS_OR_SIGN = re.compile("class|group|propert|negative|hole", re.IGNORECASE)


@dataclass
class Unread:
    """Names of attributes or properties that were met in a file and are unknown, with the number of their owners."""

    program: str
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def meet(self, names: Iterable[str], known: Collection[str], owner: str, where: str) -> None:
        """Count unknown names.

        Args:
            owner: what has them, in the plural, for notes.

        Raises:
            BadAnnotationError: a name that is known in other capitals, or may state a class, a sign or a hole.
        """
        for name in names:
            if name not in known:
                self._check_harmless(name, known, where)
                self.counts[owner, name] += 1

    def _check_harmless(self, name: str, known: Collection[str], where: str) -> None:
        meant = in_other_capitals(name, known)
        if meant is None and not _CLASS_OR_SIGN.search(name):
            return
        writes = repr(meant) if meant else f"{', '.join(sorted(known)) or 'none'} here"
        raise BadAnnotationError(
            f"{where}: unknown attribute {name!r:.80}; {self.program} writes {writes}. Export it again, or as QuPath "
            "GeoJSON."
        )

    def notes(self) -> tuple[str, ...]:
        """One sentence for each unknown name, the first few."""
        return tuple(
            f"the attribute {name!r:.60} of {owner} is not read: it is left out ({counted(count, 'time')})"
            for (owner, name), count in sorted(self.counts.items())[:MAX_NOTES]
        )


def in_other_capitals(name: str, known: Collection[str]) -> str | None:
    """The known name that differs from this one in capitals only."""
    return next((other for other in known if other.casefold() == name.casefold()), None)


def unread_attributes(
    root: ET.Element, known: Mapping[str, frozenset[str]], file_name: str, program: str
) -> tuple[str, ...]:
    """Notes on unknown attributes of the elements whose tags are in `known`.

    Raises:
        BadAnnotationError: as `Unread.meet`.
    """
    unread = Unread(program)
    for tag, names in known.items():
        for index, element in enumerate(root.iter(tag)):
            if not names.issuperset(element.attrib):
                unread.meet(element.attrib, names, f"<{tag}>", f"{file_name}, <{tag}> {index}")
    return unread.notes()
