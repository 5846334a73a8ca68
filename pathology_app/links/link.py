"""Common base of all links. Anybody can write one: a value without a meaning is taken for the nearest that has one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

MAX_TEXT = 250
"""Characters of a value."""
MAX_FIND = 100
"""Characters of what is looked for."""
_MAX_DIGITS = 9
"""Of a number: any database holds it as an integer."""

Word = TypeVar("Word", bound=str)


class Query:
    """A link's query, within bounds."""

    def __init__(self, query: Mapping[str, str]):
        self._query = query

    def find(self, name: str, at_most: int = MAX_TEXT) -> str | None:
        """The text of a value that any database and any page takes; None where the link does not have it."""
        said = self._query.get(name)
        if said is None:
            return None
        return said[:at_most].replace("\0", "\ufffd").encode(errors="replace").decode()

    def text(self, name: str, at_most: int = MAX_TEXT) -> str:
        """As `find`; "" where the link does not have it."""
        return self.find(name, at_most) or ""

    def one_of(self, name: str, words: Iterable[Word]) -> Word | None:
        """The word that a value is; None for any other."""
        said = self._query.get(name)
        return next((word for word in words if word == said), None)

    def number(self, name: str) -> int | None:
        """An integer above zero; None for any other text."""
        said = self._query.get(name, "")
        is_number = said.isascii() and said.isdecimal() and len(said) <= _MAX_DIGITS
        return int(said) or None if is_number else None

    def share(self, name: str) -> float | None:
        """A number from 0 to 1; None for any other text."""
        said = self._query.get(name, "")
        try:
            number = float(said) if len(said) <= _MAX_DIGITS else math.nan
        except ValueError:
            return None
        return number if 0 <= number <= 1 else None


@dataclass(frozen=True)
class Link:
    """One page's link."""

    def to(self, **changes: object) -> Self:
        """The same with other values."""
        return replace(self, **changes)
