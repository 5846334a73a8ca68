"""Who looked at what, and when: the project's log, for those who may see it."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from pathology_app.access.people import Action, Person, current_person, require
from pathology_app.app_pages.study_navigation import Place, go, link_button, say
from pathology_app.log_link import LOG, MAX_LENGTH, LogLink
from pathology_app.log_rows import log_html
from pathology_app.study_ledger import current_study_ledger
from pathology_app.text import READ_ERRORS, as_markdown
from pipeline.errors import BadManifestError
from pipeline.review import verify_ledger
from pipeline.study import PROJECT_LOG, Ledger, project_history

ENTRIES_SHOWN = 100


def page(worklist: st.Page) -> None:
    """Draw the part of the log that the link names."""
    if st.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="to_worklist"):
        st.switch_page(worklist, query_params={})
    st.header("Log", anchor=False)
    try:
        require(current_person(), Action.ADMINISTER)
        ledger = current_study_ledger().ledger()
        if ledger is None:
            st.info("There is no log: the project has no ledger yet. The first one who signs in, or a study, makes it.")
            return
        _draw(ledger, LogLink.of(st.query_params.to_dict()))
    except READ_ERRORS as error:
        say(error)


def log_link(place: Place, person: Person) -> None:
    """The way to the log, for those who may see it, where people sign in."""
    if person.name is not None and person.may(Action.ADMINISTER):
        link_button(place, "Log", {LOG: ""}, key="to_log", icon=":material/history:")


def _draw(ledger: Ledger, link: LogLink) -> None:
    _filters(link)
    entries = project_history(ledger, link.filter, newest=ENTRIES_SHOWN + 1)
    shown = entries[:ENTRIES_SHOWN]
    if shown:
        st.html(log_html(shown, link))
    else:
        st.info("Nothing is logged that the filters leave.")
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
    """The link says what is shown; a widget has a key for each link, so that Back changes it."""
    left, right = st.columns(2)
    slide = left.text_input("Slide", link.slide, MAX_LENGTH, key=f"log_slide {link.slide}", placeholder="whole name")
    person = right.text_input(
        "Person", link.person, MAX_LENGTH, key=f"log_person {link.person}", placeholder="beginning of the name"
    )
    wanted = LogLink(slide.strip(), person.strip())
    if (wanted.slide, wanted.person) != (link.slide, link.person):
        go(wanted.query())


def _verify(ledger: Ledger) -> None:
    """Check every entry against the one before it, and what people said of slides against the log."""
    try:
        with st.spinner("Checking every entry …"):
            verified = verify_ledger(ledger.database, PROJECT_LOG)
    except BadManifestError:
        st.info("Nothing was ever logged.")
        return
    if verified.findings:
        st.error(f"**The log does not verify.** {as_markdown('; '.join(verified.findings[:5]))}")
    else:
        st.success(f"{verified.entries:,} entries verify. The last one's hash: {verified.head}")
