"""The project's log: who viewed what, and when, for those who may see it."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from pathology_app.access.visibility import entries_for
from pathology_app.app_pages.log.rows import log_html
from pathology_app.app_pages.navigation import go, say
from pathology_app.html.text import READ_ERRORS, as_markdown
from pathology_app.links.log import MAX_LENGTH, LogLink
from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import Person
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import current_study_ledger
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Visibility
from pipeline.ledger import Ledger, project_history
from pipeline.study import verify_project_log
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

ENTRIES_SHOWN = 100


def page(worklist: st.Page, _: Visibility) -> None:
    """Draw the part of the log that the link names."""
    if st.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="to_worklist"):
        st.switch_page(worklist, query_params={})
    st.header("Log", anchor=False)
    try:
        person = current_person()
        check_act(person, Act.SEE_LOG)
        ledger = current_study_ledger().ledger()
        if ledger is None:
            st.info("There is no log: the project has no ledger yet. The first sign-in or study creates it.")
            return
        _draw(ledger, person, LogLink.of(st.query_params.to_dict()))
    except READ_ERRORS as error:
        say(error)


def _draw(ledger: Ledger, person: Person, link: LogLink) -> None:
    _filters(link)
    entries = project_history(ledger, link.filter, newest=ENTRIES_SHOWN + 1)
    shown = entries[:ENTRIES_SHOWN]
    theirs = entries_for(person, shown)
    if theirs:
        st.html(log_html(theirs, link))
    else:
        st.info("No log entry matches these filters.")
    row = st.container(horizontal=True, vertical_alignment="center")
    if len(entries) > len(shown) and row.button("Earlier entries", key="earlier"):
        go(link.to(before=shown[-1].seq).query())
    if link.before is not None and row.button("Newest entries", key="newest"):
        go(link.to(before=None).query())
    if row.button("Verify the log", key="verify", icon=":material/verified:"):
        _verify(ledger)
    row.link_button(
        "Download as CSV",
        f"/log.csv?{urlencode(link.to(before=None).query())}",
        icon=":material/download:",
    )


def _filters(link: LogLink) -> None:
    """Draw the filters, set by the link; a widget's key contains the link's value, so that Back changes it."""
    left, right = st.columns(2)
    slide = left.text_input("Slide", link.slide, MAX_LENGTH, key=f"log_slide {link.slide}", placeholder="whole name")
    person = right.text_input(
        "Person", link.person, MAX_LENGTH, key=f"log_person {link.person}", placeholder="beginning of the name"
    )
    wanted = LogLink(slide.strip(), person.strip())
    if (wanted.slide, wanted.person) != (link.slide, link.person):
        go(wanted.query())


def _verify(ledger: Ledger) -> None:
    """Check every entry against the one before it, and slide reviews against the log."""
    check_act(current_person(), Act.VERIFY_LOG)
    try:
        with st.spinner("Checking every entry …"):
            verified = verify_project_log(served_project(), ledger)
    except UnreadableError as error:
        say(error)
        return
    if verified.findings:
        st.error(f"**The log failed verification.** {as_markdown('; '.join(verified.findings[:5]))}")
    else:
        st.success(
            f"{counted(verified.entries, 'entry verified', 'entries verified')}, {verified.erased:,} of them erased. "
            f"The last one's hash: {verified.head}"
        )
