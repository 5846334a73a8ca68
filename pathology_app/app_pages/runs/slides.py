"""The slides of a run (patients, with a slide-level model), a line each, and the form that tries a slide again with the
microns per pixel it lacked."""

from __future__ import annotations

import streamlit as st

from pathology_app.app_pages.navigation import go, link_button, say
from pathology_app.app_pages.runs.forms import start_and_show
from pathology_app.app_pages.runs.slide_rows import SLIDES_PER_PAGE, may_try_again, slides_html
from pathology_app.html.text import as_markdown, as_text
from pathology_app.jobs.commands import MAX_MPP, MIN_MPP, ingest_again_command
from pathology_app.jobs.history import RunSummary
from pathology_app.jobs.offers import BadRunError, SlideFolders, SlideSource
from pathology_app.jobs.progress import Progress
from pathology_app.jobs.slides import slides_of
from pathology_app.links.runs import RunLink
from pathology_app.people.person import Action
from pathology_app.people.visitor import current_person
from pipeline.project import Project
from pipeline.settings.config import load_settings
from training.foundation.words.counts import counted

_STYLE = """<style>.st-key-again [data-testid="InputInstructions"] { display: none; }</style>"""
"""Streamlit's note on the Enter key would cover the number."""


def draw(project: Project, run: RunSummary, progress: Progress, link: RunLink) -> None:
    """Draw the slides; nothing where the run has named none.

    Raises:
        OSError, ValueError, GemslideError: the run's record or the project cannot be read.
    """
    listed = slides_of(project, run, progress)
    if not listed.ends:
        return
    in_project = frozenset(project.slide_ids())
    may_start = current_person().may(Action.RUN)
    if may_start and link.again is not None:
        end = next((end for end in listed.ends if end.slide_id == link.again), None)
        _again(project, run, link.again, end is not None and may_try_again(run, end, in_project))
    heading = f"{run.unit.capitalize()}s"
    st.html(f'<h5 style="margin: 0; padding: 0; font-size: 1rem; font-weight: 600">{heading}</h5>')
    pages = -(-len(listed.ends) // SLIDES_PER_PAGE)
    number = min(link.number, pages)
    shown = listed.ends[(number - 1) * SLIDES_PER_PAGE : number * SLIDES_PER_PAGE]
    st.html(slides_html(run, shown, in_project, project.root, may_start=may_start))
    _pages(link, number, pages, listed.unlisted, run.unit)


def _pages(link: RunLink, number: int, pages: int, unlisted: int, unit: str) -> None:
    if unlisted:
        st.caption(f"{counted(unlisted, f'further {unit} is', f'further {unit}s are')} not listed.")
    if pages == 1:
        return
    row = st.container(horizontal=True, vertical_alignment="center")
    row.caption(f"Page {number:,} of {pages:,}", width="content")
    for label, to in (("Previous", number - 1), ("Next", number + 1)):
        if row.button(label, key=f"slides_{label}", disabled=not 1 <= to <= pages):
            go(link.to(number=to, again=None).query())


def _again(project: Project, run: RunSummary, slide_id: str, may_be: bool) -> None:
    """Draw the form for one slide, or say why it cannot be tried again."""
    st.html(_STYLE)
    with st.container(border=True, key="again"):
        st.markdown(f"**Try again: {as_markdown(slide_id)}**")
        if may_be:
            _form(project, slide_id)
        elif run.runs:
            st.info("This run is still in progress. Try the slide again when it has ended.")
        else:
            st.info("This slide has been ingested, or its µm per pixel were not what was missing.")
        link_button(st.container(), "Cancel", RunLink(run.run_id).query(), key="again_cancel")


def _form(project: Project, slide_id: str) -> None:
    folders = SlideFolders.of(project, load_settings(project.settings_path).app.slide_folders)
    sources = folders.sources_of(slide_id)
    if not sources:
        names = ", ".join(folders.folders) or "none"
        st.warning(
            as_markdown(
                f"The file of {slide_id} is not in the folders searched for slides and manifests ({names}). Put it "
                f"back, or ingest it with `gemslide ingest --slide-id {slide_id} --mpp VALUE FILE`."
            )
        )
        return
    with st.form("again_form", border=False):
        source = _source(sources)
        mpp = st.number_input(
            "µm per pixel", MIN_MPP, MAX_MPP, None, step=0.01, format="%0.4f", key=f"again_mpp {slide_id}", width=240
        )
        st.caption(
            "Of the scan's full resolution, from the scanner's settings: about 0.25 for 40×, 0.5 for 20×. Every length "
            "and area measured on the slide depends on it."
        )
        if st.form_submit_button("Try again", type="primary", key="again_start"):
            _start(project, slide_id, source, mpp)


def _source(sources: list[SlideSource]) -> SlideSource | None:
    """The slide's file; of several, the one that the person chooses."""
    if len(sources) == 1:
        st.caption(as_markdown(f"File: {sources[0].name}"))
        return sources[0]
    at = st.selectbox(
        f"File ({len(sources)} would become this slide)",
        range(len(sources)),
        index=None,
        format_func=lambda number: as_text(sources[number].name),
        filter_mode=None,
        key="again_source",
    )
    return None if at is None else sources[at]


def _start(project: Project, slide_id: str, source: SlideSource | None, mpp: float | None) -> None:
    if source is None or mpp is None:
        st.error("Choose the file first." if source is None else "Enter the µm per pixel first.")
        return
    try:
        command = ingest_again_command(source, slide_id, mpp)
    except BadRunError as error:
        say(error)
        return
    message = f"Slide {slide_id} is being ingested again with {mpp:g} µm per pixel. This page follows it."
    start_and_show(project, command, message)
