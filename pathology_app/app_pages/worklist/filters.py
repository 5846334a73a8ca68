"""Filters and order of the worklist. The link holds them, so that Back, a reload and a colleague see the same.

A widget's key contains the link's value, so that no state of one link is left in another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import streamlit as st

from pathology_app.html.text import as_text
from pathology_app.links.link import MAX_FIND
from pathology_app.links.worklist import GALLERY, NO_VERDICT, TABLE, WorklistLink
from pathology_app.readings.status import ReadingStatuses
from pathology_app.slides.index.table import SlideTable
from pathology_app.slides.index.wanted import SORTS
from pathology_app.viewer.component import search_box

_ANY = ""
_SORT_WORDS = {
    "slide": "slide",
    "case": "case",
    "score": "top score",
    "state": "state",
    "quality": "quality",
    "damaged": "damage",
    "tissue": "tissue",
    "size": "size",
    "mpp": "µm/px",
    "scanner": "scanner",
    "site": "site",
    "label": "label",
    "ingested": "date ingested",
}


def draw_filters(
    link: WorklistLink,
    table: SlideTable,
    readings: ReadingStatuses | None,
    predicted: Collection[str] | None,
    only: frozenset[str] | None = None,
) -> None:
    """Draw the filters; those with nothing to choose from are left out.

    Args:
        predicted: slides whose model output may be shown; None: all.
        only: slides that the person may see; None: all.
    """
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    with left:
        search_box(
            "Filter",
            link.find,
            lambda find: go(link.to(find=find, page=1)),
            key="filter",
            placeholder="part of a slide or model name" if link.only_predicted else "part of a slide's name",
            max_length=MAX_FIND,
        )
    # In a table the headings sort. The sort menu then moves into the popover, for columns that a narrow window leaves
    # out: a select box on the page would slow down its first draw.
    headings_sort = link.view == TABLE and not link.by_case
    with right.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        label = "Sort and filter" if headings_sort else "Filters"
        with st.popover(
            f"{label} ({link.filters})" if link.filters else label, icon=":material/filter_alt:", width="content"
        ):
            if headings_sort:
                _sorting(link, table, "stretch", only)
            _filters(link, table, readings, predicted, only)
        if link.filters:
            st.button("Clear", key="clear_filters", on_click=go, args=(_cleared(link),), width="content")
        if not headings_sort:
            _sorting(link, table, 170, only)
        _views(link, table, only)
    st.checkbox(
        "Only slides with predictions",
        link.only_predicted,
        key=f"only_predicted {link.only_predicted}",
        on_change=lambda: go(link.to(only_predicted=not link.only_predicted, page=1)),
    )


def go(link: WorklistLink) -> None:
    """Go to the list that a link names."""
    st.query_params.from_dict(link.query())


def _cleared(link: WorklistLink) -> WorklistLink:
    nothing = WorklistLink()
    names = ("only_predicted", "min_score", "state", "quality", "site", "scanner", "case")
    return link.to(**{name: getattr(nothing, name) for name in names}, page=1)


def _sorting(
    link: WorklistLink, table: SlideTable, width: int | Literal["stretch"], only: frozenset[str] | None
) -> None:
    sorts = [
        name for name in SORTS if name not in ("case", "site", "label") or table.has(_COLUMN.get(name, name), only)
    ]
    sort = link.sort if link.sort in sorts else "slide"
    _choose("Sort by", sorts, sort, lambda chosen: link.sorted_by(chosen), words=_SORT_WORDS, key="sort", width=width)


def _views(link: WorklistLink, table: SlideTable, only: frozenset[str] | None) -> None:
    """Draw the switches: by case or not, table or gallery."""
    if table.has("case_id", only) or link.by_case:
        st.toggle(
            "By case",
            link.by_case,
            key=f"by_case {link.by_case}",
            on_change=lambda: go(link.to(by_case=not link.by_case, page=1)),
            width="content",
        )
    view = st.segmented_control(
        "View",
        (TABLE, GALLERY),
        default=link.view,
        format_func=str.capitalize,
        required=True,
        key=f"view {link.view}",
        label_visibility="collapsed",
        width="content",
    )
    if view != link.view:
        go(link.to(view=view))
        st.rerun()


_COLUMN = {"case": "case_id"}


def _filters(
    link: WorklistLink,
    table: SlideTable,
    readings: ReadingStatuses | None,
    predicted: Collection[str] | None,
    only: frozenset[str] | None,
) -> None:
    scored = table.scored(predicted, only)
    if scored:
        _score(link, scored)
    states = [*(readings.statuses if readings else ()), *table.choices("study state", only)]
    _choose_word("State", states, link.state, "state", link)
    verdicts = table.choices("quality", only)
    _choose_word("Quality", [*verdicts, NO_VERDICT] if verdicts else [], link.quality, "quality", link)
    _choose_word("Site", table.choices("site", only), link.site, "site", link)
    _choose_word("Scanner", table.choices("scanner", only), link.scanner, "scanner", link)
    _choose_word("Case", [link.case] if link.case else [], link.case, "case", link)


def _score(link: WorklistLink, scored: Sequence[tuple[str, str]]) -> None:
    """Draw the score filter: model and class, and the minimum."""
    models = list(dict.fromkeys(model_id for model_id, _ in scored))
    options = [_ANY, *(f"{model_id}/" for model_id in models), *(f"{model}/{name}" for model, name in scored)]
    now = "/".join(link.score_of) if link.score_of else _ANY
    words = {_ANY: "any model", **{f"{model_id}/": model_id for model_id in models}}
    words |= {f"{model}/{name}": f"{name} ({model})" for model, name in scored}

    def chosen(option: str) -> WorklistLink:
        model_id, _, class_name = option.partition("/")
        return link.to(score_of=(model_id, class_name) if option else None, page=1)

    _choose("Scores of", options if now in options else [*options, now], now, chosen, words=words, key="of")
    key = f"min_score {link.min_score}"

    def changed() -> None:
        value = st.session_state[key]
        go(link.to(min_score=None if value is None else round(float(value), 3), page=1))

    st.number_input(
        "Top score at least", 0.0, 1.0, link.min_score, 0.05, key=key, on_change=changed, placeholder="0 to 1"
    )


def _choose_word(label: str, words: Sequence[str], now: str, name: str, link: WorklistLink) -> None:
    """Draw a menu of words, "any" first; left out where there are none."""
    if not words and not now:
        return
    options = [_ANY, *dict.fromkeys([*words, *([now] if now else [])])]
    shown = {_ANY: "any", NO_VERDICT: "not checked"}
    _choose(label, options, now, lambda chosen: link.to(**{name: chosen}, page=1), words=shown, key=name)


def _choose(
    label: str,
    options: Sequence[str],
    now: str,
    to: Callable[[str], WorklistLink],
    *,
    words: Mapping[str, str],
    key: str,
    width: int | Literal["stretch"] = "stretch",
) -> None:
    """Draw a menu that goes to another link when an option is chosen."""
    own = f"{key} {now}"
    st.selectbox(
        label,
        options,
        index=list(options).index(now),
        format_func=lambda option: as_text(words.get(option, option)),
        key=own,
        on_change=lambda: go(to(st.session_state[own])),
        width=width,
    )
