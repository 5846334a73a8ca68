"""What a link to the study pages names, and the link that names it.

    ?study=S                                    how far the study is, with its slides: &state=failed &find=part &page=2
    ?study=S&view=failures                      what ended without a result: &state=failed &code=locked &page=2
    ?study=S&view=readings                      how far the readers are; what they disagree on
    ?study=S&view=read&reader=R                 the reading that is due: reader R's, where nobody signs in
    ?study=S&study_slide=S-1                    one slide and its history: &before=421
    ?study=                                     all studies of the project

Anybody can write a link: what cannot mean anything is taken for the nearest that can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

from pipeline.study.tables import SLIDE_STATES

SLIDES_PER_PAGE = 50
MAX_FIND = 100
"""Characters of what is looked for."""
_MAX_LENGTH = 200
_MAX_DIGITS = 9

View = Literal["overview", "failures", "readings", "read"]


@dataclass(frozen=True)
class StudyLink:
    """Where somebody is in the study pages.

    Attributes:
        slide: the one whose history is shown.
        state, code: which slides are listed; None: all; code "": those without one.
        find: words that are parts of the listed slides' names.
        page: of the list, from 1.
        reader: under which pseudonym somebody reads who has not signed in.
        before: number of a log entry; the history shown is what comes before it.
    """

    study: str
    view: View = "overview"
    slide: str | None = None
    state: str | None = None
    code: str | None = None
    find: str = ""
    page: int = 1
    before: int | None = None
    reader: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What a link's query names."""
        said = {name: value[:_MAX_LENGTH].replace("\0", "\ufffd") for name, value in query.items()}
        return cls(
            study=said.get("study", ""),
            view=next((view for view in get_args(View) if view == said.get("view")), "overview"),
            slide=said.get("study_slide") or None,
            state=said.get("state") if said.get("state") in SLIDE_STATES else None,
            code=said.get("code"),
            find=said.get("find", "")[:MAX_FIND],
            page=_number(said.get("page")) or 1,
            before=_number(said.get("before")),
            reader=said.get("reader") or None,
        )

    def query(self) -> dict[str, str]:
        """The query that names it; what is as it is anyway is left out."""
        said = {
            "study": self.study,
            "view": None if self.view == "overview" else self.view,
            "study_slide": self.slide,
            "state": self.state,
            "code": self.code,
            "find": self.find or None,
            "page": None if self.page == 1 else str(self.page),
            "before": None if self.before is None else str(self.before),
            "reader": self.reader,
        }
        return {name: value for name, value in said.items() if value is not None}

    def to(self, **changes: object) -> Self:
        """The same with other values."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _number(text: str | None) -> int | None:
    """A number above zero; None for any other text."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        return None
    return int(text) or None
