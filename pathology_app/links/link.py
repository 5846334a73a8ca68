"""Common base of all links. Anybody can write one: an invalid value is replaced by the nearest valid one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

MAX_TEXT = 250
"""Characters of a value."""
MAX_FIND = 100
"""Characters of a search text."""
_MAX_DIGITS = 9
"""Of a number, so that any database can store it as an integer."""

Word = TypeVar("Word", bound=str)


class Query:
    """A link's query, within bounds."""

    def __init__(self, query: Mapping[str, str]):
        self._query = query

    def find(self, name: str, at_most: int = MAX_TEXT) -> str | None:
        """A value as text that any database and any page accepts; None where the link does not have it."""
        value = self._query.get(name)
        if value is None:
            return None
        return value[:at_most].replace("\0", "\ufffd").encode(errors="replace").decode()

    def text(self, name: str, at_most: int = MAX_TEXT) -> str:
        """As `find`; "" where the link does not have it."""
        return self.find(name, at_most) or ""

    def one_of(self, name: str, words: Iterable[Word]) -> Word | None:
        """A value, if it is one of the words; None for any other."""
        value = self._query.get(name)
        return next((word for word in words if word == value), None)

    def number(self, name: str) -> int | None:
        """An integer above zero; None for any other text."""
        value = self._query.get(name, "")
        is_number = value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS
        return int(value) or None if is_number else None

    def share(self, name: str) -> float | None:
        """A number from 0 to 1; None for any other text."""
        value = self._query.get(name, "")
        try:
            number = float(value) if len(value) <= _MAX_DIGITS else math.nan
        except ValueError:
            return None
        return number if 0 <= number <= 1 else None


@dataclass(frozen=True)
class Link:
    """One page's link."""

    def to(self, **changes: object) -> Self:
        """The same link with other values."""
        return replace(self, **changes)
