"""What a link to the worklist names: ?find=part&predicted=1&page=2. Anybody can write one: the nearest is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

MAX_FIND = 100
"""Characters of what is looked for."""
_MAX_DIGITS = 8


@dataclass(frozen=True)
class WorklistLink:
    """Which slides are listed.

    Attributes:
        find: words that are parts of their names.
        only_predicted: only slides with predictions.
        page: of the list, from 1.
    """

    find: str = ""
    only_predicted: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What a link's query names."""
        page = query.get("page", "")
        is_number = page.isascii() and page.isdecimal() and len(page) <= _MAX_DIGITS
        find = query.get("find", "")[:MAX_FIND].replace("\0", "\ufffd")
        return cls(find, query.get("predicted") == "1", max(1, int(page)) if is_number else 1)

    def query(self) -> dict[str, str]:
        """The query that names it; what is as it is anyway is left out."""
        said = {
            "find": self.find,
            "predicted": "1" if self.only_predicted else "",
            "page": str(self.page) if self.page > 1 else "",
        }
        return {name: value for name, value in said.items() if value}

    def to(self, **changes: object) -> Self:
        """The same with other values."""
        return replace(self, **changes)  # type: ignore[arg-type]
