"""One slide: the viewer, its prediction and its hotspots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from pathology_app.access.visibility import attended_of
from pathology_app.app_pages.declared import fragment, say_hidden
from pathology_app.app_pages.page_views import check_slide_here, log_view
from pathology_app.app_pages.slide.exports import exports_of
from pathology_app.app_pages.slide.local_browser import is_local_browser
from pathology_app.app_pages.slide.review import review_popover
from pathology_app.app_pages.slide.session import SlideSession, slide_session
from pathology_app.cases.listing import compared_with, viewpoint_of
from pathology_app.html.text import READ_ERRORS, as_markdown, as_text, message_of
from pathology_app.links.compare import COMPARE, MAX_VIEWS, CompareLink, CompareView
from pathology_app.people.visitor import current_person
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Visibility
from pathology_app.slides import presenters
from pathology_app.slides.answers import answers_of
from pathology_app.slides.cache import OpenPredictions, OpenSlide, SlideCache, current_cache
from pathology_app.slides.overlays import layers_of
from pathology_app.viewer.component import slide_viewer
from pipeline.inference.results.hotspots import Hotspot
from pipeline.study import Blinded
from training.foundation.words.names import is_name

Place = st.delta_generator.DeltaGenerator

VIEWER_KEY = "viewer"
_CHOICE_PX = 230
"""Width of a select box with its label."""
_NO_TILES = "Slide-level models only: see the panel."
_OF_SLIDE = ("slide", "model", "class", "at", "overlay", "layers", "image")
"""Parameters of a slide's link; the last four are the browser's own (frontend/src/view/link_state.ts)."""


@dataclass(frozen=True)
class Selection:
    """Content of the page."""

    slide: OpenSlide
    opened: OpenPredictions | None
    class_index: int
    hotspots: list[Hotspot] | None
    """None where unknown: no list was made, or it cannot be read."""
    model_ids: list[str]
    """All models that have predictions for the slide and may be shown."""
    blinded: Blinded | None = None
    """Reason why none may be shown."""
    attended: Sequence[str] = ()
    """Slide-level models whose results may be shown."""

    @property
    def first_layer(self) -> tuple[str, int] | None:
        """Chosen model and class."""
        return (self.opened.predictions.model_id, self.class_index) if self.opened else None

    @property
    def hotspots_shown(self) -> list[Hotspot]:
        """Hotspots of the class shown."""
        return [hotspot for hotspot in self.hotspots or [] if hotspot["class"] == self.class_name]

    @property
    def class_name(self) -> str | None:
        return self.opened.predictions.class_names[self.class_index] if self.opened else None

    @property
    def mpp0(self) -> float:
        return self.slide.reader.mpp0


def page(worklist: st.Page, visibility: Visibility) -> None:
    """Draw the page of the slide named in the link."""
    cache = current_cache()
    row = st.container(horizontal=True, vertical_alignment="center", key="bar")  # on a narrow screen: two lines
    back, title = row.container(width="content"), row.container(width="stretch")
    review_place = row.container(width="content")
    model_place, class_place = row.container(width=_CHOICE_PX), row.container(width=_CHOICE_PX)
    with back:
        _back_button(worklist)
    slide_id = st.query_params.get("slide")
    if not slide_id:
        st.info("Choose a slide in the worklist.")
        return
    try:
        check_slide_here(slide_id)
        slide = cache.slide(slide_id)
        model_ids, blinded = visibility.models_of(cache, slide_id)
        attended = attended_of(cache, visibility, slide_id)
        log_view(slide_id, "slide", model=st.query_params.get("model") or next(iter(model_ids), None))
    except READ_ERRORS as error:
        _say(error, cache)
        return
    with title:
        _title(slide.reader.slide_id, model_ids)
    if blinded is not None:
        say_hidden(blinded)
        selection = Selection(slide, None, 0, None, [], blinded)
    elif model_ids:
        selection = replace(_choose(cache, slide, model_ids, model_place, class_place), attended=attended)
    else:
        model_place.caption(_NO_TILES if attended else "No predictions for this slide yet.")
        selection = Selection(slide, None, 0, None, [], attended=attended)
    model_id = selection.opened.predictions.model_id if selection.opened else None
    if withheld := visibility.hides_assessments(slide_id):
        if blinded is None:
            say_hidden(withheld)
    else:
        with review_place:
            review_popover(slide_id, selection.opened, selection.class_name)
    _view(selection, slide_session(slide.reader.slide_id, model_id))


def _title(slide_id: str, model_ids: list[str]) -> None:
    """Draw the slide's name, and a button to compare it with the others of its case, or its models with each other."""
    row = st.container(horizontal=True, vertical_alignment="center")
    row.markdown(f"#### {as_markdown(slide_id)}", width="content")
    if row.button("Compare", type="tertiary", key="compare_with", help="Side by side with other slides or models"):
        kept = {name: value for name, value in st.query_params.to_dict().items() if name not in _OF_SLIDE}
        link = _compare_link(slide_id, model_ids)
        st.query_params.from_dict({**kept, COMPARE: link.text})
        st.rerun()


def _compare_link(slide_id: str, model_ids: list[str]) -> CompareLink:
    """The slide beside others of its block, else of its case; without any, its models, or the slide without them."""
    model = st.query_params.get("model")
    chosen = model if model and is_name(model) else None
    others = compared_with(viewpoint_of(served_project(), current_person()), slide_id)
    if others:
        views = [CompareView(slide_id, chosen), *(CompareView(other) for other in others)]
    elif len(model_ids) > 1:
        first = chosen if chosen in model_ids else model_ids[0]
        views = [CompareView(slide_id, name) for name in (first, *(name for name in model_ids if name != first))]
    else:
        views = [CompareView(slide_id, chosen), CompareView(slide_id, "")]
    return CompareLink(tuple(views[:MAX_VIEWS]))


def _back_button(worklist: st.Page) -> None:
    """Go back to where the link came from: a study, or the worklist at its page; the link then names no slide."""
    label = "Study" if "study" in st.query_params else "Worklist"
    if st.button(label, icon=":material/arrow_back:", type="tertiary", key="back"):
        for name in _OF_SLIDE:
            st.query_params.pop(name, None)
        st.switch_page(worklist, query_params=st.query_params.to_dict())


def _choose(
    cache: SlideCache, slide: OpenSlide, model_ids: list[str], model_place: Place, class_place: Place
) -> Selection:
    """Read the chosen model's predictions. If they cannot be read, say so and show the slide without them."""
    slide_id = slide.reader.slide_id
    model_id = _choose_model(model_ids, model_place)
    try:
        opened = cache.predictions(slide_id, model_id)
    except READ_ERRORS as error:
        _say(error, cache)
        return Selection(slide, None, 0, None, model_ids)
    hotspots = _hotspots(cache, slide_id, model_id)
    class_index = _choose_class(model_id, opened.predictions.class_names, hotspots or [], class_place)
    return Selection(slide, opened, class_index, hotspots, model_ids)


def _hotspots(cache: SlideCache, slide_id: str, model_id: str) -> list[Hotspot] | None:
    """The model's hotspots; a damaged list is reported, and slide and prediction are still shown."""
    try:
        hotspots = cache.hotspots(slide_id, model_id)
        return hotspots.spots if hotspots else None
    except READ_ERRORS as error:
        _say(error, cache)
        return None


def _say(error: Exception, cache: SlideCache) -> None:
    st.error(as_markdown(message_of(error, cache.project.root)))


def _choose_model(model_ids: list[str], place: Place) -> str:
    """The link's model, or the one chosen; the link then names it."""
    wanted = st.query_params.get("model", model_ids[0])
    if wanted not in model_ids:
        instead = as_markdown(model_ids[0])
        st.warning(f"No predictions of model {as_markdown(repr(wanted))} for this slide; showing {instead}.")
        wanted = model_ids[0]
    chosen = place.selectbox("Model", model_ids, index=model_ids.index(wanted), format_func=as_text, key="model")
    if chosen != st.query_params.get("model", model_ids[0]):  # each change of the link is a step for the browser's Back
        st.query_params["model"] = chosen
    return chosen


def _choose_class(model_id: str, class_names: Sequence[str], hotspots: Sequence[Hotspot], place: Place) -> int:
    """The link's class, or the one chosen; the link then names it."""
    default = presenters.default_class(class_names, hotspots)
    wanted = st.query_params.get("class")
    index = class_names.index(wanted) if wanted in class_names else default
    chosen = place.selectbox(
        "Class",
        range(len(class_names)),
        index=index,
        format_func=lambda option: as_text(class_names[option]),
        key=f"class {index} of {model_id}",
    )
    if chosen != index:
        st.query_params["class"] = class_names[chosen]
        st.rerun()
    return chosen


@fragment
def _view(selection: Selection, session: SlideSession) -> None:
    """Draw the viewer. Clicks rerun only this fragment."""
    data = _viewer_data(selection, session)
    slide_viewer(data, key=VIEWER_KEY, on_click=lambda click: _remember_click(session, click))


def _viewer_data(selection: Selection, session: SlideSession) -> dict[str, object]:
    slide, opened = selection.slide, selection.opened
    hotspots = []
    if opened:
        hotspots = presenters.hotspot_data(
            selection.hotspots_shown,
            stride_px0=opened.predictions.stride_px0,
            mpp0=selection.mpp0,
            crop_url=presenters.crops_of(slide, opened.predictions),
        )
    slide_id = slide.reader.slide_id
    layers, notes = layers_of(current_cache(), slide_id, selection.model_ids, selection.first_layer, selection.attended)
    notes = [*presenters.slide_notes(slide.reader), *notes]
    if opened and (outdated := presenters.outdated_note(slide, opened.predictions)):
        notes.insert(0, outdated)
    return {
        "slide": presenters.slide_data(slide),
        "thumbnail_url": f"/thumbnails/{slide_id}.jpg?v={slide.version}",
        "exports": exports_of(
            served_project(),
            slide_id,
            opened.predictions.model_id if opened else None,
            current_person(),
            is_here=is_local_browser(),
        ),
        "layers": layers,
        "answers": answers_of(current_cache(), slide_id, selection.attended),
        "notes": notes,
        "facts": presenters.facts_rows(slide.reader),
        "hotspots": hotspots,
        "hotspots_note": _hotspots_note(selection),
        "hotspots_url": f"/hotspots/{slide_id}/{opened.predictions.model_id}.json" if opened else None,
        "coverage_url": f"/coverage/{slide_id}.json",
        "tray_url": f"/tray/{slide_id}.json",
        "goto": {"id": session.goto_id, "hotspot": session.goto_hotspot} if session.goto_id else None,
        "probe": _probe_data(selection, session),
    }


def _probe_data(selection: Selection, session: SlideSession) -> dict[str, object] | None:
    """Probabilities of all classes, and attention, at the last point clicked."""
    if session.probe_xy_px0 is None:
        return None
    x_px0, y_px0 = session.probe_xy_px0
    rows = [("Place", presenters.place_text(session.probe_xy_px0, selection.mpp0))]
    text = "no prediction"
    if selection.opened is not None and selection.class_name is not None:
        probabilities = selection.opened.predictions.at(x_px0, y_px0)
        text = presenters.probability_text(probabilities, selection.class_name)
        rows += presenters.probability_rows(probabilities or {})
    slide_id = selection.slide.reader.slide_id
    attention = presenters.attention_rows(current_cache(), slide_id, selection.attended, session.probe_xy_px0)
    if selection.opened is None and attention:
        text = ": ".join(attention[0])
    rows += attention
    return {"x_px0": x_px0, "y_px0": y_px0, "text": text, "rows": [*rows, *([] if len(rows) > 1 else [("", text)])]}


def _remember_click(session: SlideSession, click: object) -> None:
    """Store the clicked position; anything but two integers is ignored."""
    if isinstance(click, Mapping):
        x_px0, y_px0 = click.get("x_px0"), click.get("y_px0")
        if isinstance(x_px0, int) and isinstance(y_px0, int):
            session.probe_xy_px0 = x_px0, y_px0


def _hotspots_note(selection: Selection) -> str | None:
    """Note on the list; None where hotspots must not be mentioned."""
    if selection.blinded is not None:
        return None
    others = len(selection.hotspots or []) - len(selection.hotspots_shown)
    reason = [] if selection.hotspots_shown else [_why_no_hotspots(selection)]
    return " ".join([*reason, *([f"{others} more of other classes."] if others else [])])


def _why_no_hotspots(selection: Selection) -> str:
    if selection.hotspots is not None:
        return "None found." if not selection.hotspots else "None of this class."
    if selection.opened is None:
        return "No predictions to show."
    return "Unknown: no readable hotspot list. Create it with `gemslide infer`."
