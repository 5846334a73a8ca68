"""Pages that declare what they show. Only declared pages are dispatched, and none that would show hidden content is
drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

import streamlit as st

from pathology_app.html.text import READ_ERRORS, as_markdown
from pathology_app.people.visitor import current_person
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Shows, Visibility, visibility_of, why_hidden
from pipeline.study import Blinded

_DRAWN_FOR = "visibility"
WATCH_S, WATCH_OTHERS_S = 5.0, 30.0
"""Longest time for which an open page still shows content that has become hidden: for people who may be readers, and
for others, whose account would have to change first."""

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class DeclaredPage:
    """A page, or a view of one.

    Attributes:
        is_named: whether a link's query names it; the first such page of a table is drawn.
        shows: what it shows to a person from whom nothing is hidden.
        draw: takes the arguments common to all pages of its table, and the Visibility.
        redacts: the page itself leaves out hidden content. Otherwise it is not drawn at all for a blinded person.
    """

    name: str
    is_named: Callable[[Mapping[str, str]], bool]
    shows: Shows
    draw: Callable[..., None]
    redacts: bool = False


def find_page(pages: tuple[DeclaredPage, ...], query: Mapping[str, str]) -> DeclaredPage:
    """The page that a link names; every link names the last one."""
    return next(page for page in pages if page.is_named(query))


def draw_page(
    pages: tuple[DeclaredPage, ...], query: Mapping[str, str], visibility: Visibility, *arguments: Any
) -> bool:
    """Draw the page that a link names, unless it would show hidden content. Returns whether it was drawn.

    Args:
        arguments: the page's arguments before the Visibility.
    """
    page = find_page(pages, query)
    if page.shows is not Shows.NEITHER and not page.redacts and visibility.first is not None:
        say_hidden(visibility.first)
        return False
    page.draw(*arguments, visibility)
    return True


def say_hidden(blinded: Blinded) -> None:
    """Explain what is not shown, and why."""
    reason = why_hidden(blinded)
    st.info(as_markdown(reason[0].upper() + reason[1:]), icon=":material/visibility_off:")


def begin_page() -> Visibility:
    """Determine what the person at the current page may see. Raises: as `current_person` and `visibility_of`."""
    st.session_state[_DRAWN_FOR] = None
    visibility = visibility_of(served_project(), current_person())
    st.session_state[_DRAWN_FOR] = visibility
    return visibility


def fragment(draw: Callable[Arguments, None], *, run_every: float | None = None) -> Callable[Arguments, None]:
    """A part of a page that reruns by itself (`st.fragment`). Where the person's visibility has changed since the page
    was drawn, the whole page is drawn again instead."""

    @wraps(draw)
    def guarded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        if _is_as_drawn():
            draw(*args, **kwargs)

    return st.fragment(guarded, run_every=run_every)


def watch_visibility(visibility: Visibility | None) -> None:
    """Redraw an open page soon after its viewer's visibility has changed.

    Args:
        visibility: the one with which the page was drawn; None where it could not be determined.
    """
    person = visibility.person if visibility else None
    may_be_reader = person is None or person.name is None or person.reader is not None
    st.fragment(_watch, run_every=WATCH_S if may_be_reader else WATCH_OTHERS_S)()


def _watch() -> None:
    _is_as_drawn()


def _is_as_drawn() -> bool:
    """Whether the page may stay as drawn; if not, or if the ledger does not answer, it is drawn again."""
    now: Visibility | None
    try:
        now = visibility_of(served_project(), current_person())
    except READ_ERRORS:
        now = None
    if now != st.session_state.get(_DRAWN_FOR):
        st.rerun()
    return now is not None
