"""Link to the study pages: the page it names, and the link that names a page.

?study=S                                    progress of the study, with its slides: &state=failed &find=part &page=2
?study=S&view=failures                      slides that ended without a result: &state=failed &code=locked &page=2
?study=S&view=readings                      progress of the readers; their disagreements
?study=S&view=read&reader=R                 the next reading: reader R's, where nobody signs in
?study=S&study_slide=S-1                    one slide and its history: &before=421
?study=                                     all studies of the project
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

from pathology_app.links.link import MAX_FIND, Link, Query
from pipeline.ledger.tables import SLIDE_STATES

SLIDES_PER_PAGE = 50

View = Literal["overview", "failures", "readings", "read"]
VIEWS: tuple[View, ...] = get_args(View)


@dataclass(frozen=True)
class StudyLink(Link):
    """Position in the study pages.

    Attributes:
        slide: the one whose history is shown.
        state, code: of the listed slides; None: all; code "": those without one.
        find: words that the listed slides' names contain.
        page: of the list, from 1.
        reader: pseudonym under which somebody who has not signed in reads.
        before: number of a log entry; only the history before it is shown.
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
        """Parse a link's query."""
        values = Query(query)
        return cls(
            study=values.text("study"),
            view=values.one_of("view", VIEWS) or "overview",
            slide=values.text("study_slide") or None,
            state=values.one_of("state", SLIDE_STATES),
            code=values.find("code"),
            find=values.text("find", MAX_FIND),
            page=values.number("page") or 1,
            before=values.number("before"),
            reader=values.text("reader") or None,
        )

    def query(self) -> dict[str, str]:
        """The query that names it; defaults are left out."""
        values = {
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
        return {name: value for name, value in values.items() if value is not None}
