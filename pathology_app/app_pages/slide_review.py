"""A review of a slide outside all studies: agree or not, an own label, a comment, signed; and all earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pathology_app import html_tables
from pathology_app.access.people import Action, current_person, require
from pathology_app.blinding import check_not_hidden, why_hidden
from pathology_app.study_actors import MAX_NAME
from pathology_app.study_ledger import current_study_ledger
from pathology_app.study_rows import time_text
from pathology_app.text import READ_ERRORS, as_markdown, message_of
from pathology_app.tiles.cache import OpenPredictions, current_cache
from pipeline.review import VERDICTS, Looking, SlideReview, add_review, reviews_of
from pipeline.study import Blinded

WORDS = {"agree": "Agree", "disagree": "Disagree", "cannot_judge": "Cannot judge"}
MAX_LABEL, MAX_COMMENT = 200, 5_000
_NAME = "study_name"
"""As the study pages keep it: a name is typed once."""
_COLUMNS = (
    html_tables.Column("Time (UTC)", "fixed"),
    html_tables.Column("Signed by"),
    html_tables.Column("Prediction"),
    html_tables.Column("Verdict"),
    html_tables.Column("Own label"),
    html_tables.Column("Comment", "long"),
)


def say_hidden(blinded: Blinded) -> None:
    """Why nothing of a model is shown, and the way to the reading."""
    said = why_hidden(blinded)
    st.info(as_markdown(said[0].upper() + said[1:]), icon=":material/visibility_off:")


def review_popover(slide_id: str, opened: OpenPredictions | None, class_name: str | None) -> None:
    """The form and the history, behind one button.

    Args:
        opened, class_name: the prediction on the screen; None where there is none.
    """
    try:
        ledger = current_study_ledger().ledger()
        earlier = reviews_of(ledger, slide_id) if ledger else []
    except READ_ERRORS as error:
        st.caption(as_markdown(message_of(error, current_cache().project.root)))
        return
    label = f"Reviews ({len(earlier)})" if earlier else "Review"
    with st.popover(label, icon=":material/rate_review:", width="content"):
        _history(earlier)
        if current_person().may(Action.ANNOTATE):
            _form(slide_id, opened, class_name, key=f"review {slide_id} {len(earlier)}")  # a new one is empty


def _form(slide_id: str, opened: OpenPredictions | None, class_name: str | None, *, key: str) -> None:
    person = current_person()
    about = f"the prediction of {opened.predictions.model_id} for {class_name}" if opened else "the slide"
    with st.form(key, border=False, enter_to_submit=False):
        st.markdown(f"What do you think of {as_markdown(about)}?")
        words = WORDS.__getitem__
        verdict = st.radio("Verdict", VERDICTS, None, format_func=words, horizontal=True, key=f"{key} verdict")
        own = st.text_input(
            "Own label", max_chars=MAX_LABEL, placeholder="what you see, if it is something else", key=f"{key} label"
        )
        comment = st.text_area("Comment", max_chars=MAX_COMMENT, height=90, key=f"{key} comment")
        typed = st.session_state.get(_NAME, "")
        name = person.name or st.text_input("Sign with your name", typed, max_chars=MAX_NAME, key=f"{key} name")
        st.caption("A review is kept as it is signed, with its entry in the project's log.")
        if not st.form_submit_button("Sign", type="primary"):
            return
    try:
        require(person, Action.ANNOTATE)
        check_not_hidden(current_cache().project, person, slide_id)
        model_id = opened.predictions.model_id if opened else None
        sha256 = opened.sha256 if opened else None
        said = SlideReview(verdict or "", " ".join(name.split()), own, comment, model_id, class_name, sha256)
        add_review(current_study_ledger().made(), Looking(slide_id, person.actor, person.actor), said)
    except READ_ERRORS as error:
        st.error(as_markdown(message_of(error, current_cache().project.root)))
        return
    st.session_state[_NAME] = name
    st.rerun()


def _history(earlier: Sequence[SlideReview]) -> None:
    rows = [
        (
            time_text(each.utc),
            each.name,
            f"{each.model_id}: {each.class_name}" if each.model_id else "",
            WORDS.get(each.verdict, each.verdict),
            each.label,
            each.comment,
        )
        for each in reversed(earlier)
    ]
    if rows:
        st.html(html_tables.beside({"Earlier reviews": html_tables.table(_COLUMNS, rows, label="Reviews")}))
