"""Actions on a study from its pages: retry slides, pause, resume; each is logged with a name and a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from pathology_app.app_pages.studies.acts import retry_slides, set_study_state
from pathology_app.html.text import as_markdown
from pathology_app.people.actions import is_allowed, logging_refusal
from pathology_app.people.actors import MAX_NAME, MAX_REASON, IncompleteError, actor_text, reason_text
from pathology_app.people.acts import Act
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import StudyLedger
from pipeline.ledger.ledger import Ledger, StudyRow
from pipeline.study import SlideSearch
from training.foundation.words.counts import counted

_SAID = "study_said"
_NAME = "study_name"


@dataclass(frozen=True)
class Chosen:
    """Slides to retry: those named, or all that ended in a given state with a given code."""

    number: int
    slide_ids: Sequence[str] = ()
    ended: SlideSearch | None = None

    @property
    def slides(self) -> str:
        return counted(self.number, "slide")


def last_message() -> None:
    """Show the result of the last action, once."""
    if message := st.session_state.pop(_SAID, None):
        st.success(message)


def retry_form(study_ledger: StudyLedger, ledger: Ledger, study_id: str, chosen: Chosen) -> None:
    """Draw the form to retry slides, for people who may, with a name and a reason."""
    if not is_allowed(Act.RETRY):
        return
    who_and_why = ask_who_and_why("retry", f"Retry {chosen.slides}")
    if who_and_why is None:
        return
    actor, why = who_and_why
    with st.spinner("Writing to the ledger …"), logging_refusal(Act.RETRY) as person:
        retried = retry_slides(person, ledger, study_id, chosen.slide_ids, chosen.ended, actor=actor, why=why)
    number = f"{len(retried):,} of {chosen.slides}" if len(retried) != chosen.number else chosen.slides
    done(
        study_ledger,
        f"{number} can continue from the stage where processing ended. This needs running workers: if there are none, "
        f"start them with `gemslide study run {as_markdown(study_id)}`.",
    )


def state_form(study_ledger: StudyLedger, ledger: Ledger, row: StudyRow) -> None:
    """Draw the form to pause a running study, or to resume a paused one."""
    if not is_allowed(Act.PAUSE):
        return
    is_running = row.state == "running"
    with st.popover("Pause …" if is_running else "Resume …", icon=_icon(is_running)):
        st.caption(
            "Workers finish their current tasks and take no new ones."
            if is_running
            else "Workers can take tasks again; start them separately."
        )
        who_and_why = ask_who_and_why("state", "Pause" if is_running else "Resume")
    if who_and_why is None:
        return
    actor, why = who_and_why
    state = "paused" if is_running else "running"
    with logging_refusal(Act.PAUSE if is_running else Act.RESUME) as person:
        has_changed = set_study_state(person, ledger, row.study_id, state, actor=actor, why=why)
    done(study_ledger, f"The study is {state}{'' if has_changed else ' already'}.")


def _icon(is_running: bool) -> str:
    return ":material/pause:" if is_running else ":material/play_arrow:"


def ask_who_and_why(key: str, label: str) -> tuple[str, str] | None:
    """Draw a form for name and reason. Returns both in the log's format once both were sent. People signed in under a
    name need not type one."""
    person = current_person()
    with st.form(key, border=False, enter_to_submit=False):
        name = person.name or st.text_input(
            "Your name", value=st.session_state.get(_NAME, ""), max_chars=MAX_NAME, key=f"{key}_name"
        )
        why = st.text_input("Reason", max_chars=MAX_REASON, key=f"{key}_why")
        subject = "Both are" if person.name is None else f"Your name ({as_markdown(person.name)}) and the reason are"
        st.caption(f"{subject} kept permanently in the study's log.")
        if not st.form_submit_button(label, type="primary"):
            return None
        try:
            who_and_why = person.actor if person.name else actor_text(name), reason_text(why)
        except IncompleteError as error:
            st.error(as_markdown(error))
            return None
    if person.name is None:
        st.session_state[_NAME] = name
    return who_and_why


def done(study_ledger: StudyLedger, message: str) -> None:
    """Redraw the page, with a message on top about what was done."""
    study_ledger.forget()
    st.session_state[_SAID] = message
    st.rerun()
