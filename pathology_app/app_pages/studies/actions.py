"""What can be done to a study from its pages: retry slides, pause, resume; each with who did it, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from pathology_app.access.acting import check_action, may_now
from pathology_app.access.people import Action, current_person
from pathology_app.study_actors import MAX_NAME, MAX_REASON, IncompleteError, actor_text, reason_text
from pathology_app.study_ledger import StudyLedger
from pathology_app.text import as_markdown
from pipeline.study.ledger import Ledger, StudyRow
from pipeline.study.retries import retry

_SAID = "study_said"
_NAME = "study_name"


@dataclass(frozen=True)
class Chosen:
    """Slides to be retried: those named, or all that ended in a state with a code."""

    number: int
    slide_ids: Sequence[str] = ()
    state: str | None = None
    code: str | None = None

    @property
    def slides(self) -> str:
        return "1 slide" if self.number == 1 else f"{self.number:,} slides"


def last_said() -> None:
    """Say what the last action did, once."""
    if said := st.session_state.pop(_SAID, None):
        st.success(said)


def retry_form(found: StudyLedger, ledger: Ledger, study_id: str, chosen: Chosen) -> None:
    """Give slides another chance, for somebody who may, with a name and a reason."""
    if not may_now(Action.COORDINATE):
        return
    who_and_why = ask_who_and_why("retry", f"Retry {chosen.slides}")
    if who_and_why is None:
        return
    actor, why = who_and_why
    check_action(Action.COORDINATE)
    with st.spinner("Writing to the ledger …"):
        retried = retry(ledger, study_id, chosen.slide_ids, chosen.state, actor=actor, why=why, code=chosen.code)
    number = f"{len(retried):,} of {chosen.slides}" if len(retried) != chosen.number else chosen.slides
    done(
        found,
        f"{number} can go on from the stage that ended them. Workers must run for that: where none does, start them "
        f"with `gemslide study run {as_markdown(study_id)}`.",
    )


def state_form(found: StudyLedger, ledger: Ledger, row: StudyRow) -> None:
    """Pause a study that runs, or let it go on."""
    if not may_now(Action.COORDINATE):
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
    check_action(Action.COORDINATE)
    state = "paused" if is_running else "running"
    has_changed = ledger.set_state(row.study_id, state, actor=actor, why=why)
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
