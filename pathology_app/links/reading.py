"""A link to the data of one reading of a study: ?study=S&reader=r1&session=1&position=3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from pathology_app.links.link import Link, Query
from pipeline.errors import BadManifestError

_NAMES = ("study", "reader", "session", "position")


@dataclass(frozen=True)
class ReadingLink(Link):
    """One reading of a study."""

    study_id: str
    reader: str
    session: int
    position: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ReadingLink | None:
        """The reading that a query names; None where it names none.

        Raises:
            BadManifestError: it names one only in part.
        """
        if not any(query.get(name) for name in _NAMES):
            return None
        values = Query(query)
        study_id, reader = values.text("study"), values.text("reader")
        session, position = values.number("session"), values.number("position")
        if not study_id or not reader or session is None or position is None:
            raise BadManifestError(f"a reading is named by {', '.join(_NAMES)}.")
        return cls(study_id, reader, session, position)

    def query(self) -> str:
        return urlencode(dict(zip(_NAMES, (self.study_id, self.reader, self.session, self.position), strict=True)))

    @property
    def key(self) -> str:
        return f"{self.reader}/{self.session}/{self.position}"
