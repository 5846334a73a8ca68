"""Signed review of a slide outside any study: agree or not, the reviewer's label, a comment; and earlier reviews."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pathology_app.app_pages.counts import counts_html
from pathology_app.app_pages.signed_form import Answers, DraftPlace, SignedForm, place_of
from pathology_app.app_pages.studies.acts import review_slide
from pathology_app.app_pages.studies.reading_rows import question_data
from pathology_app.html import tables as html_tables
from pathology_app.html.text import READ_ERRORS, as_markdown, message_of, time_text
from pathology_app.people.actors import MAX_NAME
from pathology_app.people.acts import RIGHTS, Act
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import current_study_ledger
from pathology_app.project.served import served_project
from pathology_app.readings.drafts import draft_owner
from pathology_app.slides.cache import OpenPredictions, current_cache
from pipeline.review import VERDICTS, SlideReview, reviews_of
from pipeline.study.reading.questions import Question

WORDS = {"agree": "Agree", "disagree": "Disagree", "cannot_judge": "Cannot judge"}
MAX_LABEL, MAX_COMMENT = 200, 5_000
_VERDICT_OF = {words: verdict for verdict, words in WORDS.items()}
_QUESTIONS = (
    Question(name="verdict", ask="Verdict", kind="choice", choices=tuple(WORDS[verdict] for verdict in VERDICTS)),
    Question(name="label", ask="Your label, if you see something else", kind="text", required=False),
    Question(name="comment", ask="Comment", kind="text", required=False),
)
_SIGN = Question(name="name", ask="Sign with your name", kind="text")
_LONGEST = {"label": MAX_LABEL, "name": MAX_NAME}
_NAME = "study_name"
"""Shared with the study pages, so that a name is typed once."""
_COLUMNS = (
    html_tables.Column("Time (UTC)", "fixed"),
    html_tables.Column("Signed by"),
    html_tables.Column("Prediction"),
    html_tables.Column("Verdict"),
    html_tables.Column("Reviewer's label"),
    html_tables.Column("Comment", "long"),
)


def review_popover(slide_id: str, opened: OpenPredictions | None, class_name: str | None) -> None:
    """Draw one button that opens the form and the history.

    Args:
        opened, class_name: the prediction on screen; None where there is none.
    """
    try:
        ledger = current_study_ledger().ledger()
        earlier = reviews_of(ledger, slide_id) if ledger else []
        counts = counts_html(current_cache(), ledger, slide_id) if ledger else ""
    except READ_ERRORS as error:
        st.caption(as_markdown(message_of(error, served_project().root)))
        return
    label = f"Reviews ({len(earlier)})" if earlier else "Review"
    with st.popover(label, icon=":material/rate_review:", width="content"):
        if counts:
            st.html(counts)
        _history(earlier)
        if current_person().may(RIGHTS[Act.REVIEW]):
            signed = sum(review.person == current_person().actor for review in earlier)
            _form(slide_id, opened, class_name, signed=signed)


def _form(slide_id: str, opened: OpenPredictions | None, class_name: str | None, *, signed: int) -> None:
    """Draw the form for a new review. Typed answers survive a change of prediction or page.

    Args:
        signed: number of reviews the person has signed; the next begins empty.
    """
    person = current_person()
    subject = f"the prediction of {opened.predictions.model_id} for {class_name}" if opened else "the slide"
    st.markdown(f"Review {as_markdown(subject)}")
    questions = _QUESTIONS if person.name else (*_QUESTIONS, _SIGN)
    typed = st.session_state.get(_NAME, "")
    form = SignedForm(
        f"review {slide_id}",
        place_of("review", slide_id, person.actor, signed),
        [question_data(item) | {"max_length": _LONGEST.get(item.name, MAX_COMMENT)} for item in questions],
        DraftPlace(draft_owner(served_project().root, person), f"Review of slide {slide_id}", {"slide": slide_id}),
        {_SIGN.name: typed} if typed and not person.name else {},
    )

    def sign(answers: Answers) -> None:
        verdict, label, comment, name = (str(answers.get(question.name, "")) for question in (*_QUESTIONS, _SIGN))
        name = person.name or " ".join(name.split())
        model_id, sha256 = (opened.predictions.model_id, opened.sha256) if opened else (None, None)
        review = SlideReview(
            _VERDICT_OF.get(verdict, verdict), name, " ".join(label.split()), comment, model_id, class_name, sha256
        )
        review_slide(person, slide_id, review)
        st.session_state[_NAME] = name

    form.draw(on_sign=sign)
    st.caption("A review is stored as signed, with an entry in the project's log.")


def _history(earlier: Sequence[SlideReview]) -> None:
    rows = [
        (
            time_text(review.utc),
            review.name,
            f"{review.model_id}: {review.class_name}" if review.model_id else "",
            WORDS.get(review.verdict, review.verdict),
            review.label,
            review.comment,
        )
        for review in reversed(earlier)
    ]
    if rows:
        st.html(html_tables.beside({"Earlier reviews": html_tables.table(_COLUMNS, rows, label="Reviews")}))
