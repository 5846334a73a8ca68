"""Heading of every view of a study: its question, state, frozen protocol, and the switch between views."""

from __future__ import annotations

import streamlit as st

from pathology_app.app_pages.navigation import go
from pathology_app.app_pages.studies import rows as study_rows
from pathology_app.app_pages.studies.actions import state_form
from pathology_app.html.tables import SHORT_HASH
from pathology_app.html.text import as_markdown
from pathology_app.links.studies import StudyLink, View
from pathology_app.project.ledger import StudyLedger
from pathology_app.readings.blinding import Visibility
from pipeline.ledger.ledger import Counts, Ledger, StudyRow
from training.foundation.words.counts import counted


def draw_heading(
    study_ledger: StudyLedger, ledger: Ledger, row: StudyRow, link: StudyLink, counts: Counts, visibility: Visibility
) -> None:
    """Draw the heading."""
    title, question = map(visibility.without_names, study_rows.about(row))
    words, action = st.columns([5, 1], vertical_alignment="top")
    with words:
        st.markdown(f"#### {as_markdown(title or row.study_id)}")
        if question:
            st.markdown(as_markdown(question))
        st.caption(_facts(row, counts), help=f"SHA-256 of the protocol: {as_markdown(row.protocol_sha256)}")
    with action.container(horizontal=True, horizontal_alignment="right"):
        if not counts.is_over:
            state_form(study_ledger, ledger, row)
    if findings := study_ledger.findings(ledger, row.study_id):
        st.error(
            f"**The log of this study failed verification** ({counted(findings, 'finding')}): "
            "something was changed without a log entry. Do not rely on anything here until somebody has investigated: "
            f"`gemslide study verify {as_markdown(row.study_id)}` lists what was changed."
        )
    _views(link, counts, has_readings=study_rows.has_readings(row), is_blinded=visibility.first is not None)


def _facts(row: StudyRow, counts: Counts) -> str:
    state, colour = row.state, "green" if row.state == "running" else "orange"
    if counts.is_over:
        state, colour = "every slide has ended", "blue"
    frozen = f"protocol version {row.version}, SHA-256 {row.protocol_sha256[:SHORT_HASH]}…"
    return f":{colour}-badge[{state}] &nbsp; study {as_markdown(row.study_id)} · {as_markdown(frozen)}"


def _views(link: StudyLink, counts: Counts, *, has_readings: bool, is_blinded: bool) -> None:
    """Draw the switch between views; the link says which is shown, so that the browser's Back changes it."""
    words: dict[View, str] = {"overview": "Overview"}
    if not is_blinded:
        words["failures"] = f"Without a result ({study_rows.without_result(counts):,})"
    if has_readings:
        words["readings"] = "Readings"
    view = st.segmented_control(
        "View",
        list(words),
        default=link.view if link.view in words else "overview",
        format_func=lambda name: words[name],
        required=True,
        key=f"study_view {link.view}",
        label_visibility="collapsed",
    )
    if view != link.view:
        go(StudyLink(link.study, view).query())
