"""What a link to the project's log names: ?log=&slide_of=S-1&person=ada&before=421. Anybody can write one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from pipeline.study import LogFilter, slide_subject

LOG = "log"
MAX_LENGTH = 80
_MAX_DIGITS = 15


@dataclass(frozen=True)
class LogLink:
    """Which entries are shown.

    Attributes:
        slide: the slide they are about; "": all.
        person: the beginning of who.
        before: number of an entry; only those before it.
    """

    slide: str = ""
    person: str = ""
    before: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What a link's query names; what cannot mean anything is left out."""
        said = {name: value[:MAX_LENGTH].replace("\0", "\ufffd") for name, value in query.items()}
        before = said.get("before", "")
        is_number = before.isascii() and before.isdecimal() and len(before) <= _MAX_DIGITS
        return cls(said.get("slide_of", ""), said.get("person", ""), int(before) or None if is_number else None)

    def query(self) -> dict[str, str]:
        """The query that names it."""
        said = {"slide_of": self.slide, "person": self.person, "before": str(self.before or "")}
        return {LOG: "", **{name: value for name, value in said.items() if value}}

    def to(self, **changes: object) -> Self:
        """The same with other values."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def filter(self) -> LogFilter:
        """As the ledger takes it."""
        return LogFilter(slide_subject(self.slide) if self.slide else None, self.person or None, self.before)
