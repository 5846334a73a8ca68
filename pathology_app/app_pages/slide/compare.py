"""Two to four slides side by side: several models on one slide, or the slides of a case."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pathology_app.app_pages.declared import say_hidden
from pathology_app.app_pages.page_views import log_view
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

_NO_MODEL = "no prediction"


def page(worklist: st.Page, visibility: Visibility) -> None:
    """Draw the views that the link names."""
    cache, link = current_cache(), CompareLink.of(st.query_params.to_dict())
    link = link.without_models(visibility.predicted, visibility.models)
    back, title, add = st.columns([1.2, 3, 3], vertical_alignment="center")
    with back:
        if st.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="back"):
            for name in OF_COMPARE:
                st.query_params.pop(name, None)
            st.switch_page(worklist, query_params=st.query_params.to_dict())
    title.markdown("#### Side by side")
    with add:
        _add(link)
    panes = _panes(cache, link, visibility)
    if len(panes) < 2:
        st.info("Add a slide, or the same one again with another model. Two to four fit side by side.")
    if panes:
        compare_viewer({"name": link.text, "panes": panes, "may_register": is_allowed(Act.REGISTER)}, key="compare")


def _go(link: CompareLink) -> None:
    st.query_params[COMPARE] = link.text


def _add(link: CompareLink) -> None:
    """Draw a field for the name of another slide."""
    if len(link.views) >= MAX_VIEWS:
        st.caption(f"At most {MAX_VIEWS} views can be shown.")
        return
    key = f"add to {link.text}"

    def add() -> None:
        name = str(st.session_state[key]).strip()
        if is_name(name):
            _go(link.with_view(CompareView(name)))

    st.text_input("Add a slide", key=key, placeholder="slide name, then Enter", max_chars=64, on_change=add)


def _panes(cache: SlideCache, link: CompareLink, visibility: Visibility) -> list[dict[str, Any]]:
    panes = []
    for index, place in enumerate(st.columns(max(1, len(link.views)))[: len(link.views)]):
        with place:
            try:
                panes.append(_pane(cache, link, index, visibility))
            except READ_ERRORS as error:
                st.error(as_markdown(message_of(error, cache.project.root)))
                st.button("Remove", key=f"remove {index}", on_click=_go, args=(link.without(index),))
    return panes


def _pane(cache: SlideCache, link: CompareLink, index: int, visibility: Visibility) -> dict[str, Any]:
    """One view in the browser's format (ComparePaneData), with a select box for its model."""
    view = link.views[index]
    log_view(view.slide_id, "compare", model=view.model_id or None)
    slide = cache.slide(view.slide_id)
    model_ids, blinded = visibility.models_of(cache, view.slide_id)
    if blinded is not None:
        say_hidden(blinded)
    choices = [*model_ids, _NO_MODEL]
    wanted = _NO_MODEL if view.model_id == "" else view.model_id if view.model_id in model_ids else choices[0]
    row = st.container(horizontal=True, vertical_alignment="bottom")
    chosen = row.selectbox(
        f"Model over {as_markdown(view.slide_id)}",
        choices,
        index=choices.index(wanted),
        format_func=as_text,
        key=f"model {index} of {link.text}",
    )
    row.button(
        "Remove",
        icon=":material/close:",
        key=f"remove {index}",
        on_click=_go,
        args=(link.without(index),),
        type="tertiary",
    )
    if chosen != wanted:
        _go(link.with_model(index, "" if chosen == _NO_MODEL else chosen))
        st.rerun()
    first = _first_layer(cache, view.slide_id, chosen) if chosen in model_ids else None
    layers, notes = layers_of(cache, view.slide_id, [chosen] if first else [], first)
    title = as_text(view.slide_id if first is None else f"{view.slide_id} · {chosen}")
    return {"title": title, "slide": presenters.slide_data(slide), "layers": layers, "notes": notes}


def _first_layer(cache: SlideCache, slide_id: str, model_id: str) -> tuple[str, int]:
    """Model and class to show: the link's class where the model has it."""
    class_names = cache.class_names(slide_id, model_id).class_names
    wanted = st.query_params.get("class")
    index = class_names.index(wanted) if wanted in class_names else presenters.default_class(class_names, [])
    return model_id, index
