"""The worklist: every slide of the project, a page at a time; a click opens one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pathology_app.app_pages.studies import studies_link
from pathology_app.tiles.cache import SlideCache, current_cache
from pathology_app.worklist_rows import Page, find_slides, page_of, read_row

ROW_HEIGHT_PX = 96
HEADER_HEIGHT_PX = 38
MAX_ROWS_SHOWN = 7
TABLE_KEY = "worklist"
PAGE_PARAMETER = "page"

_COLUMNS = {
    "thumbnail": st.column_config.ImageColumn("", width=150),
    "slide": st.column_config.TextColumn("Slide", width=150),
    "note": st.column_config.TextColumn("Note", width=260),
    "size": st.column_config.TextColumn("Size"),
    "mpp": st.column_config.NumberColumn("µm/px", format="%.4g", width=60),
    "levels": st.column_config.NumberColumn("Levels", width=60),
    "tissue_mm2": st.column_config.NumberColumn("Tissue mm²", format="%.1f", width=90),
    "models": st.column_config.ListColumn("Predictions of"),
    "top_score": st.column_config.ProgressColumn("Highest hotspot", format="%.2f", min_value=0.0, max_value=1.0),
}


def page(open_slide: Callable[[str], None]) -> None:
    """Draw the page; `open_slide` leaves it."""
    cache = current_cache()
    title, studies = st.columns([3, 1], vertical_alignment="bottom")
    title.header("Worklist", anchor=False)
    studies_link(studies)
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    only_predicted = right.checkbox("Only slides with predictions", key="only_predicted")
    what = "part of a slide or model name" if only_predicted else "part of a slide's name"
    text = left.text_input("Filter", placeholder=what, key="filter")
    slide_ids, total = find_slides(cache, text, only_predicted=only_predicted)
    if not total:
        st.info(
            "No slides in this project. Bring some in with `gemslide ingest`, "
            "or make a demonstration project with `gemslide demo`."
        )
        return
    shown = page_of(slide_ids, st.query_params.get(PAGE_PARAMETER, "1"))
    _show_pages(shown, f"{len(slide_ids)} of {total} slides. Click a row to open the slide.")
    _show_table(cache, shown, open_slide)


def _show_pages(shown: Page, caption: str) -> None:
    """How many slides, and the way to the other pages."""
    if shown.pages == 1:
        st.caption(caption)
        return
    left, number, previous, following = st.columns([6, 1.2, 1, 1], vertical_alignment="center")
    left.caption(caption)
    number.caption(f"Page {shown.number} of {shown.pages}")
    for place, label, to in ((previous, "Previous", shown.number - 1), (following, "Next", shown.number + 1)):
        place.button(
            label, key=f"to_{label}", disabled=not 1 <= to <= shown.pages, on_click=_go_to, args=(to,), width="stretch"
        )


def _go_to(page_number: int) -> None:
    st.query_params[PAGE_PARAMETER] = str(page_number)


def _show_table(cache: SlideCache, shown: Page, open_slide: Callable[[str], None]) -> None:
    rows = [read_row(cache, slide_id) for slide_id in shown.slide_ids]
    has_notes = any(row.note for row in rows)
    event = st.dataframe(
        [row.as_dict() for row in rows],
        column_config=_COLUMNS if has_notes else {**_COLUMNS, "note": None},
        hide_index=True,
        placeholder="",
        row_height=ROW_HEIGHT_PX,
        height=HEADER_HEIGHT_PX + ROW_HEIGHT_PX * min(max(1, len(rows)), MAX_ROWS_SHOWN),
        on_select="rerun",
        selection_mode="single-cell",
        key=f"{TABLE_KEY}-{shown.number}",
    )
    if event.selection.cells:
        row_index, _ = event.selection.cells[0]
        open_slide(rows[row_index].slide_id)
