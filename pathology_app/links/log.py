"""Link to the project's log: ?log=&slide_of=S-1&person=ada&before=421. Anybody can write one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pathology_app.links.link import Link, Query
from pipeline.ledger import LogFilter, slide_subject

LOG = "log"
MAX_LENGTH = 80


@dataclass(frozen=True)
class LogLink(Link):
    """Entries that are shown.

    Attributes:
        slide: the slide they are about; "": all.
        person: the beginning of the name.
        before: number of an entry; only entries before it are shown.
    """

    slide: str = ""
    person: str = ""
    before: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Parse a link's query; invalid values are left out."""
        values = Query(query)
        return cls(values.text("slide_of", MAX_LENGTH), values.text("person", MAX_LENGTH), values.number("before"))

    def query(self) -> dict[str, str]:
        """The query that names it."""
        values = {"slide_of": self.slide, "person": self.person, "before": str(self.before or "")}
        return {LOG: "", **{name: value for name, value in values.items() if value}}

    @property
    def filter(self) -> LogFilter:
        """The filter as the ledger takes it."""
        return LogFilter(slide_subject(self.slide) if self.slide else None, self.person or None, self.before)
