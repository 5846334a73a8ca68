"""Current and past runs, newest first; one run; and the forms that start one."""

from __future__ import annotations

import streamlit as st

from pathology_app.app_pages.declared import fragment
from pathology_app.app_pages.navigation import Place, go, link_button, say
from pathology_app.app_pages.runs import forms as run_forms
from pathology_app.app_pages.runs import rows as run_rows
from pathology_app.app_pages.runs import run as run_view
from pathology_app.html.line_chart import STYLE
from pathology_app.html.text import READ_ERRORS
from pathology_app.jobs.history import list_runs, run_ids
from pathology_app.jobs.progress import progress_of
from pathology_app.jobs.start import running_ids
from pathology_app.links.runs import NEW_RUNS, RUNS_PER_PAGE, RunLink
from pathology_app.people.actions import log_refusal
from pathology_app.people.person import Action, ForbiddenError
from pathology_app.people.visitor import current_person
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Visibility
from training.foundation.words.counts import counted

REFRESH_S = 3.0
_ICON = ":material/play_circle:"


def page(worklist: st.Page, _: Visibility) -> None:
    """Draw the page that the link names; an error is one message."""
    link = RunLink.of(st.query_params.to_dict())
    st.html(STYLE)
    row = st.container(horizontal=True, vertical_alignment="center", gap="medium")
    if row.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="to_worklist"):
        st.switch_page(worklist, query_params={})
    if link.run or link.new:
        link_button(row, "Runs", RunLink().query(), key="to_runs")
    run_forms.last_message()
    try:
        _check()
        if link.run:
            run_view.draw(link)
        elif link.new:
            run_forms.draw(link.new)
        else:
            _list(link)
    except READ_ERRORS as error:
        say(error)


def _check() -> None:
    """Refuse people who may see only some slides: runs name slides of others."""
    if current_person().slides is not None:
        log_refusal("forbidden", "runs")
        raise ForbiddenError("Runs name all slides of the project, and you may see only some of them.")


def runs_link(place: Place, visibility: Visibility) -> None:
    """Draw the worklist's link to the runs, for those who may see them."""
    if current_person().slides is not None or visibility.first is not None:
        return
    try:
        project = served_project()
        running = len(running_ids(project))
        is_shown = current_person().may(Action.RUN) or bool(run_ids(project))
    except READ_ERRORS as error:
        say(error)
        return
    if is_shown:
        label = f"Runs ({running} running)" if running else "Runs"
        link_button(place, label, RunLink().query(), key="to_runs", icon=_ICON)


def _list(link: RunLink) -> None:
    st.header("Runs", anchor=False)
    if current_person().may(Action.RUN):
        row = st.container(horizontal=True, vertical_alignment="center")
        row.caption("Start:", width="content")
        for new in NEW_RUNS:
            if row.button(f"{run_forms.TITLES[new]} …", key=f"new_{new}"):
                go(RunLink(new=new).query())
    every_s = REFRESH_S if running_ids(served_project()) else None
    fragment(_rows, run_every=every_s)(link, every_s)


def _rows(link: RunLink, every_s: float | None) -> None:
    """Draw the list, and redraw it every few seconds while something runs."""
    project = served_project()
    try:
        ids = run_ids(project)
        pages = max(1, -(-len(ids) // RUNS_PER_PAGE))
        first = (min(link.number, pages) - 1) * RUNS_PER_PAGE
        shown = list_runs(project, ids[first : first + RUNS_PER_PAGE])
        progress = {run.run_id: progress_of(project, run) for run in shown if run.runs}
    except READ_ERRORS as error:
        say(error)
        return
    if not ids:
        st.info("There are no runs in this project yet.")
        return
    st.html(run_rows.runs_html(shown, progress, project.root))
    again = "" if every_s is None else f" Updated every {every_s:.0f} s."
    row = st.container(horizontal=True, vertical_alignment="center")
    row.caption(f"{counted(len(ids), 'run')}, newest first. Click a run to open it.{again}")
    if pages > 1:
        row.caption(f"Page {min(link.number, pages)} of {pages}", width="content")
        for label, to in (("Newer", link.number - 1), ("Older", link.number + 1)):
            if row.button(label, key=f"runs_{label}", disabled=not 1 <= to <= pages):
                go(RunLink(number=to).query())
    if every_s is not None and not running_ids(project):
        st.rerun()  # nothing is running any more: the page need not refresh
