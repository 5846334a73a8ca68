"""Two to four slides side by side: several models on one slide, or the slides of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import streamlit as st

from pathology_app.access.visibility import attended_of
from pathology_app.app_pages.declared import say_hidden
from pathology_app.app_pages.page_views import check_slide_here, log_view
from pathology_app.html.text import READ_ERRORS, as_markdown, as_text, message_of
from pathology_app.links.compare import COMPARE, MAX_VIEWS, OF_COMPARE, CompareLink, CompareView
from pathology_app.people.actions import is_allowed
from pathology_app.people.acts import Act
from pathology_app.readings.blinding import Visibility
from pathology_app.slides import presenters
from pathology_app.slides.cache import SlideCache, current_cache
from pathology_app.slides.overlays import layers_of
from pathology_app.viewer.component import compare_viewer
from training.foundation.words.names import is_name

_REFUSED = "slides that could not be added"


def page(worklist: st.Page, visibility: Visibility) -> None:
    """Draw the views that the link names. One that cannot be shown takes no place."""
    cache, named = current_cache(), CompareLink.of(st.query_params.to_dict())
    named = named.without_models(visibility.predicted, visibility.models)
    row = st.container(horizontal=True, vertical_alignment="center", key="bar")
    with row.container(width="content"):
        if st.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="back"):
            for name in OF_COMPARE:
                st.query_params.pop(name, None)
            st.switch_page(worklist, query_params=st.query_params.to_dict())
    row.container(width="stretch").markdown("#### Side by side")
    for message in st.session_state.pop(_REFUSED, []):
        st.error(message)
    link, panes = _panes(cache, named, visibility)
    if not panes:
        st.info("No slide to show side by side. Open a slide in the worklist, and choose *Compare* there.")
        return
    if link != named:
        st.query_params[COMPARE] = link.text
    data = {
        "name": link.text,
        "panes": panes,
        "may_register": is_allowed(Act.REGISTER),
        "may_add": len(panes) < MAX_VIEWS,
    }
    compare_viewer(data, key="compare", on_change=lambda change: _change(cache, link, change))


def _change(cache: SlideCache, link: CompareLink, change: object) -> None:
    """Change the link as a view's controls ask: anything that a browser can send."""
    if not isinstance(change, Mapping):
        return
    slide_id, index, model_id = change.get("add"), change.get("view"), change.get("model")
    if isinstance(slide_id, str) and is_name(slide_id) and len(link.views) < MAX_VIEWS:
        try:
            check_slide_here(slide_id)
            cache.slide(slide_id)
        except READ_ERRORS as error:
            st.session_state[_REFUSED] = [as_markdown(message_of(error, cache.project.root))]
            return
        _go(link.with_view(CompareView(slide_id)))
    elif type(index) is int and 0 <= index < len(link.views):
        if model_id is None:
            _go(link.without(index))
        elif isinstance(model_id, str) and (model_id == "" or is_name(model_id)):
            _go(link.with_model(index, model_id))


def _go(link: CompareLink) -> None:
    st.query_params[COMPARE] = link.text


def _panes(cache: SlideCache, link: CompareLink, visibility: Visibility) -> tuple[CompareLink, list[dict[str, Any]]]:
    """The views that can be shown, and the link to them; the others are reported."""
    views, panes = [], []
    for view in link.views:
        try:
            panes.append(_pane(cache, view, visibility))
            views.append(view)
        except READ_ERRORS as error:
            st.error(as_markdown(message_of(error, cache.project.root)))
    return replace(link, views=tuple(views)), panes


def _pane(cache: SlideCache, view: CompareView, visibility: Visibility) -> dict[str, Any]:
    """One view in the browser's format (ComparePaneData)."""
    log_view(view.slide_id, "compare", model=view.model_id or None)
    slide = cache.slide(view.slide_id)
    model_ids, blinded = visibility.models_of(cache, view.slide_id)
    if blinded is not None:
        say_hidden(blinded)
    shown = view.model_id if view.model_id in (*model_ids, "") else next(iter(model_ids), "")
    first = _first_layer(cache, view.slide_id, shown) if shown else None
    attended = [] if view.model_id == "" else attended_of(cache, visibility, view.slide_id)
    layers, notes = layers_of(cache, view.slide_id, [shown] if shown else [], first, attended)
    return {
        "title": as_text(f"{view.slide_id} · {shown}" if shown else view.slide_id),
        "slide": presenters.slide_data(slide),
        "models": list(model_ids),
        "model": shown or "",
        "is_blinded": blinded is not None,
        "layers": layers,
        "notes": [*presenters.slide_notes(slide.reader), *notes],
    }


def _first_layer(cache: SlideCache, slide_id: str, model_id: str) -> tuple[str, int]:
    """Model and class to show: the link's class where the model has it."""
    class_names = cache.class_names(slide_id, model_id).class_names
    wanted = st.query_params.get("class")
    index = class_names.index(wanted) if wanted in class_names else presenters.default_class(class_names, [])
    return model_id, index
