"""Actions on a study from its pages: retry slides, pause, resume; each with who did it, and why."""

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
    """Slides to be retried: those named, or all that ended in a state with a code."""

    number: int
    slide_ids: Sequence[str] = ()
    ended: SlideSearch | None = None

    @property
    def slides(self) -> str:
        return counted(self.number, "slide")


def last_message() -> None:
    """Say what the last action did, once."""
    if said := st.session_state.pop(_SAID, None):
        st.success(said)


def retry_form(found: StudyLedger, ledger: Ledger, study_id: str, chosen: Chosen) -> None:
    """Give slides another chance, for somebody who may, with a name and a reason."""
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
        found,
        f"{number} can go on from the stage that ended them. Workers must run for that: where none does, start them "
        f"with `gemslide study run {as_markdown(study_id)}`.",
    )


def state_form(found: StudyLedger, ledger: Ledger, row: StudyRow) -> None:
    """Pause a study that runs, or let it go on."""
    if not is_allowed(Act.PAUSE):
        return
    is_running = row.state == "running"
    with st.popover("Pause …" if is_running else "Resume …", icon=_icon(is_running)):
        st.caption(
            "Workers finish what they have, and take no more."
            if is_running
            else "Workers can take tasks again; they must be started, too."
        )
        who_and_why = ask_who_and_why("state", "Pause" if is_running else "Resume")
    if who_and_why is None:
        return
    actor, why = who_and_why
    state = "paused" if is_running else "running"
    with logging_refusal(Act.PAUSE if is_running else Act.RESUME) as person:
        has_changed = set_study_state(person, ledger, row.study_id, state, actor=actor, why=why)
    done(found, f"The study is {state}{'' if has_changed else ' already'}.")


def _icon(is_running: bool) -> str:
    return ":material/pause:" if is_running else ":material/play_arrow:"


def ask_who_and_why(key: str, label: str) -> tuple[str, str] | None:
    """A form for who acts, and why; both as the log takes them, when it was sent with both. Who has signed in under a
    name types none."""
    person = current_person()
    with st.form(key, border=False, enter_to_submit=False):
        name = person.name or st.text_input(
            "Your name", value=st.session_state.get(_NAME, ""), max_chars=MAX_NAME, key=f"{key}_name"
        )
        why = st.text_input("Reason", max_chars=MAX_REASON, key=f"{key}_why")
        what = "Both stand" if person.name is None else f"Your name ({as_markdown(person.name)}) and the reason stand"
        st.caption(f"{what} in the study's log and stay there.")
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


def done(found: StudyLedger, said: str) -> None:
    """Show the pages as they are now, with what was done above them."""
    found.forget()
    st.session_state[_SAID] = said
    st.rerun()
