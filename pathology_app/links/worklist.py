"""Link to the worklist: ?find=part&sort=score&page=2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from pathology_app.links.link import MAX_FIND, Link, Query
from pathology_app.slides.index.wanted import SORTS, Wanted

_FALLS = "-"
"""Prefix of the sort key for reverse order."""
GALLERY, TABLE = "gallery", "table"
NO_VERDICT = "-"
ROWS_PER_PAGE = 50


@dataclass(frozen=True)
class WorklistLink(Link):
    """Choice and order of the slides listed.

    Attributes:
        find: words that their names contain.
        only_predicted: only slides with predictions.
        score_of: (model, class) whose scores count, either may be ""; None: of any.
        min_score: of a hotspot, 0 to 1.
        state: of a slide for a reader, or in a study.
        quality: the verdict; `NO_VERDICT`: not checked.
        sort: a key of `slides.index.wanted.SORTS`.
        is_reversed: in reverse order.
        by_case: slides of one case together.
        view: `TABLE` or `GALLERY`.
        page: of the list, from 1.
    """

    find: str = ""
    only_predicted: bool = False
    score_of: tuple[str, str] | None = None
    min_score: float | None = None
    state: str = ""
    quality: str = ""
    site: str = ""
    scanner: str = ""
    case: str = ""
    sort: str = "slide"
    is_reversed: bool = False
    by_case: bool = False
    view: str = TABLE
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Parse a link's query."""
        values = Query(query)
        sort, of = values.text("sort"), values.text("of")
        name = sort.removeprefix(_FALLS)
        model_id, _, class_name = of.partition("/")
        return cls(
            find=values.text("find", MAX_FIND),
            only_predicted=values.text("predicted") == "1",
            score_of=(model_id, class_name) if of else None,
            min_score=values.share("score"),
            state=values.text("state"),
            quality=values.text("quality"),
            site=values.text("site"),
            scanner=values.text("scanner"),
            case=values.text("case"),
            sort=name if name in SORTS else "slide",
            is_reversed=name in SORTS and sort.startswith(_FALLS),
            by_case=values.text("group") == "case",
            view=values.one_of("view", [GALLERY]) or TABLE,
            page=values.number("page") or 1,
        )

    def query(self) -> dict[str, str]:
        """The query that names it; defaults are left out."""
        sort = f"{_FALLS if self.is_reversed else ''}{self.sort}"
        values = {
            "find": self.find,
            "predicted": "1" if self.only_predicted else "",
            "of": "/".join(self.score_of) if self.score_of else "",
            "score": "" if self.min_score is None else f"{self.min_score:g}",
            "state": self.state,
            "quality": self.quality,
            "site": self.site,
            "scanner": self.scanner,
            "case": self.case,
            "sort": "" if sort == "slide" else sort,
            "group": "case" if self.by_case else "",
            "view": self.view if self.view != TABLE else "",
            "page": str(self.page) if self.page > 1 else "",
        }
        return {name: value for name, value in values.items() if value}

    def sorted_by(self, sort: str) -> Self:
        """The list from its first page, sorted by a key; in reverse order if it is sorted by that already."""
        return self.to(sort=sort, is_reversed=self.sort == sort and not self.is_reversed, page=1)

    @property
    def filters(self) -> int:
        """Number of filters that leave slides out, besides the search words."""
        return sum(
            bool(value) for value in (self.only_predicted, self.state, self.quality, self.site, self.scanner, self.case)
        ) + (self.min_score is not None)

    def wanted(
        self, readings: Mapping[str, str], reading_words: tuple[str, ...], predicted: Collection[str] | None = None
    ) -> Wanted:
        """The same choice as a query to the index. Arguments: as in `Wanted`."""
        model_id, class_name = self.score_of or ("", "")
        return Wanted(
            words=self.find.casefold().split(),
            only_predicted=self.only_predicted,
            model_id=model_id or None,
            class_name=class_name or None,
            min_score=self.min_score,
            state=self.state or None,
            quality={"": None, NO_VERDICT: ""}.get(self.quality, self.quality),
            site=self.site or None,
            scanner=self.scanner or None,
            case_id=self.case or None,
            sort=self.sort,
            is_reversed=self.is_reversed,
            readings=readings,
            reading_words=reading_words,
            predicted=predicted,
        )
