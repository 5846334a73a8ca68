"""One run: its progress, log, curves and results, and a button to stop it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pathology_app.app_pages.declared import fragment
from pathology_app.app_pages.navigation import link_button, say
from pathology_app.app_pages.runs import rows as run_rows
from pathology_app.app_pages.runs import slide_level
from pathology_app.app_pages.runs import slides as run_slides
from pathology_app.app_pages.runs.acts import stop
from pathology_app.app_pages.studies import rows as study_rows
from pathology_app.html import tables as html_tables
from pathology_app.html.text import READ_ERRORS, as_markdown, without_folders
from pathology_app.jobs.curves import Curves
from pathology_app.jobs.history import RunSummary, read_run
from pathology_app.jobs.progress import Progress, progress_of
from pathology_app.jobs.state import JobState
from pathology_app.links.runs import RunLink
from pathology_app.links.studies import StudyLink
from pathology_app.people.person import Action
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import current_study_ledger
from pathology_app.project.served import served_project
from pipeline.models.packages import read_card
from pipeline.project import Project
from training.foundation.words.names import is_name

REFRESH_S = 2.0
_LOG_PX = 320
_MAX_CARD = 20_000
"""Characters of a model's card."""
_OPTIMISTIC = (
    "Validation of each target in the epoch with the lowest loss so far. Validation chose this epoch, so its figures "
    "are optimistic. Research use only."
)
_OF_SLIDES = ("ingest", "qc", "infer")
_BADGES = {
    run_rows.PARTIAL: "orange",
    "running": "blue", "stopping": "orange", "done": "green", "failed": "red", "stopped": "gray",
    "interrupted": "gray", "lost": "violet", "damaged": "violet",
}  # fmt: skip


def draw(link: RunLink) -> None:
    """Draw the run.

    Raises:
        UnreadableError: there is no such run. OSError: its files cannot be read.
    """
    assert link.run
    project = served_project()
    run = read_run(project, link.run)
    _heading(project, run)
    every_s = None if not run.runs and progress_of(project, run).is_whole else REFRESH_S
    fragment(_live, run_every=every_s)(project, link, every_s)
    _results(project, run)
    _settings(run)


def _heading(project: Project, run: RunSummary) -> None:
    words, action = st.columns([5, 1], vertical_alignment="top")
    subject = f" · {as_markdown(run.about)}" if run.about else ""
    words.markdown(f"#### {as_markdown(run.verb.capitalize() or 'Run')}{subject}")
    by = f" · started by {as_markdown(run.job.job.by)}" if run.job else ""
    words.caption(f"run {as_markdown(run.run_id)}{by}")
    if run.damage:
        st.warning(as_markdown(without_folders(run.damage, project.root)))
    if run.job:
        st.code(run_rows.command_text(run.job.job.argv, project.root), language=None, wrap_lines=True)
    if run.runs and current_person().may(Action.RUN):
        with action.container(horizontal=True, horizontal_alignment="right"):
            _stop_form(project, run)


def _stop_form(project: Project, run: RunSummary) -> None:
    assert run.job
    if run.job.state is JobState.STOPPING:
        return
    with st.popover("Stop …", icon=":material/stop_circle:"):
        st.markdown(
            f"This interrupts the run like Ctrl+C; if it does not stop, it is killed. {run_rows.RESUMED[run.verb]}"
        )
        if st.button("Stop this run", type="primary", key="stop"):
            try:
                stop(project, run.run_id, current_person())
            except READ_ERRORS as error:
                say(error)
                return
            st.rerun()


def _live(project: Project, link: RunLink, every_s: float | None) -> None:
    """Draw the part that changes during the run."""
    assert link.run
    try:
        run = read_run(project, link.run)
        progress = progress_of(project, run)
    except READ_ERRORS as error:
        say(error)
        return
    _state(project, run, progress)
    _progress(run, progress)
    if progress.curves:
        _curves(progress.curves)
    if run.verb in _OF_SLIDES:
        _slides(project, run, progress, link)
    if run.job:
        _log(project, progress.lines)
    if every_s is not None and not run.runs and progress.is_whole:
        st.rerun()  # it has ended: redraw the whole page, and stop refreshing


def _state(project: Project, run: RunSummary, progress: Progress) -> None:
    last_error = "" if progress.counted.bad else run_rows.last_error_line(progress.lines)
    state, word = run_rows.state_of(run, progress)
    text = run_rows.ending_text(run.job) if run.job else run_rows.outcome_text(run, project.root)
    details = f" &nbsp; {as_markdown(text)}" if text and text != word and state != run_rows.PARTIAL else ""
    st.markdown(f":{_BADGES.get(state, 'gray')}-badge[{as_markdown(word)}]{details}")
    if state == JobState.FAILED and last_error:
        st.error(as_markdown(without_folders(last_error, project.root)))
    if run.state in (JobState.STOPPED, JobState.LOST):
        st.info(run_rows.RESUMED.get(run.verb, "Run it again to continue."))
    if run.state == JobState.STOPPING and run.job and run.job.stop:
        st.info(as_markdown(f"{run.job.stop.by} stopped this run; it may take up to a minute to finish."))


def _progress(run: RunSummary, progress: Progress) -> None:
    facts = run_rows.run_facts(run, progress)
    if training := slide_level.slide_training(run, progress.curves):
        facts |= slide_level.training_facts(training, progress.curves)
    st.html(html_tables.facts(facts))
    if run.verb == "study run":
        _study(run)
        return
    if run.job and (bar := run_rows.progress_html(progress)):
        st.html(bar)
    if run.runs and progress.step:
        step = progress.step
        st.caption(as_markdown(f"Now: {step.what}, {step.done:,} of {step.total:,}."))
    elif run.runs and not progress.ended:
        st.caption("Started; nothing is finished yet.")


def _study(run: RunSummary) -> None:
    """Draw the study's progress from its ledger."""
    study_ledger = current_study_ledger()
    ledger = study_ledger.ledger()
    if ledger is None or run.about not in study_ledger.names():
        st.caption("The study has not started yet.")
        return
    progress = study_ledger.progress(ledger, run.about)
    st.html(html_tables.beside({"Slides of the study": study_rows.states_html(progress.counts)}))


def _slides(project: Project, run: RunSummary, progress: Progress, link: RunLink) -> None:
    try:
        run_slides.draw(project, run, progress, link)
    except (*READ_ERRORS, ValueError) as error:
        say(error)


def _curves(curves: Curves) -> None:
    if charts := run_rows.curves_html(curves):
        st.html(html_tables.beside(charts))
    if best := slide_level.best_epoch_html(curves):
        st.html(best)
        st.caption(_OPTIMISTIC)
    if table := run_rows.epochs_html(curves):
        with st.expander("Metrics by epoch"):
            st.html(table)


def _log(project: Project, lines: Sequence[str]) -> None:
    """Draw the end of the log, for those who may start runs: it may reveal more than a run record does."""
    if not current_person().may(Action.RUN):
        return
    st.html('<h5 style="margin: 0; padding: 0; font-size: 1rem; font-weight: 600">Log</h5>')
    with st.container(height=_LOG_PX, autoscroll=True, key="run_log"):
        shown = run_rows.log_text(lines, project.root)
        st.code(shown or "(no output yet)", language=None, wrap_lines=True)
    st.caption("End of the log, without tables; the full log is in runs/jobs/ of the project.")


def _results(project: Project, run: RunSummary) -> None:
    """Draw the run's results, with links to them."""
    if run.verb.startswith("study") and is_name(run.about):
        link_button(st.container(), f"Study {as_markdown(run.about)}", StudyLink(run.about).query(), key="to_study")
    if run.record and run.record.models:
        for model in dict.fromkeys(filter(is_name, run.record.models.values())):
            _model(project, model, [which for which, name in run.record.models.items() if name == model])


def _model(project: Project, model: str, which: list[str]) -> None:
    package = project.model_path(model)
    with st.expander(f"Model {as_markdown(model)} ({', '.join(map(as_markdown, which))}): its card"):
        try:
            card = read_card(package)
        except READ_ERRORS as error:
            say(error)
            return
        st.code(card[:_MAX_CARD], language=None, wrap_lines=True)


def _settings(run: RunSummary) -> None:
    if run.record and run.record.settings:
        with st.expander("Settings"):
            rows = run_rows.flat(run.record.settings)
            columns = (html_tables.Column("Setting"), html_tables.Column("Value", "long"))
            st.html(html_tables.table(columns, rows, label="Settings"))
