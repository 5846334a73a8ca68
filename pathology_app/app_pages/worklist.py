"""The worklist: every slide of the project; a click opens one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pathology_app.presenters import WorklistRow, matching, worklist_row
from pathology_app.tiles.cache import SlideCache, current_cache
from pipeline.errors import GemslideError
from pipeline.inference.hotspots import Hotspot

ROW_HEIGHT_PX = 96
HEADER_HEIGHT_PX = 38
MAX_ROWS_SHOWN = 7
TABLE_KEY = "worklist"

_COLUMNS = {
    "thumbnail": st.column_config.ImageColumn("", width=150),
    "slide": st.column_config.TextColumn("Slide", width="medium"),
    "size": st.column_config.TextColumn("Size"),
    "mpp": st.column_config.NumberColumn("µm per pixel", format="%.4g", width="small"),
    "levels": st.column_config.NumberColumn("Levels", width="small"),
    "tissue_mm2": st.column_config.NumberColumn("Tissue mm²", format="%.1f", width="small"),
    "models": st.column_config.ListColumn("Predictions of"),
    "top_score": st.column_config.ProgressColumn("Highest hotspot score", format="%.2f", min_value=0.0, max_value=1.0),
}


def page(open_slide: Callable[[str], None]) -> None:
    """Draw the page; `open_slide` leaves it."""
    cache = current_cache()
    st.header("Worklist", anchor=False)
    rows, damaged = _read_rows(cache)
    for message in damaged:
        st.error(message)
    if not rows and not damaged:
        st.info(
            f"No slides in {cache.project.slides_dir}. Bring some in with `gemslide ingest`, "
            "or make a demo project with `gemslide demo`."
        )
    if rows:
        _show_table(rows, open_slide)


def _read_rows(cache: SlideCache) -> tuple[list[WorklistRow], list[str]]:
    """Rows of the slides that can be read, and what is wrong with the others."""
    rows: list[WorklistRow] = []
    damaged: list[str] = []
    for slide_id in cache.project.slide_ids():
        try:
            slide, models = cache.slide(slide_id), cache.model_ids(slide_id)
            hotspots = _hotspots(cache, slide_id, models, damaged)
            rows.append(worklist_row(slide, tissue_mm2=cache.tissue_mm2(slide_id), models=models, hotspots=hotspots))
        except GemslideError as error:
            damaged.append(f"Slide {slide_id}: {error}")
    return rows, damaged


def _hotspots(cache: SlideCache, slide_id: str, models: list[str], damaged: list[str]) -> list[Hotspot]:
    """Hotspots of all models; a damaged list is said and costs no more than itself."""
    found: list[Hotspot] = []
    for model_id in models:
        try:
            found += cache.hotspots(slide_id, model_id)
        except GemslideError as error:
            damaged.append(f"Slide {slide_id}: {error}")
    return found


def _show_table(rows: list[WorklistRow], open_slide: Callable[[str], None]) -> None:
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    text = left.text_input("Filter", placeholder="part of a slide or model name")
    only_predicted = right.checkbox("Only slides with predictions")
    shown = matching(rows, text, only_predicted=only_predicted)
    st.caption(f"{len(shown)} of {len(rows)} slides. Click a row to open the slide.")
    event = st.dataframe(
        [row.as_dict() for row in shown],
        column_config=_COLUMNS,
        hide_index=True,
        row_height=ROW_HEIGHT_PX,
        height=HEADER_HEIGHT_PX + ROW_HEIGHT_PX * min(max(1, len(shown)), MAX_ROWS_SHOWN),
        on_select="rerun",
        selection_mode="single-cell",
        key=TABLE_KEY,
    )
    if event.selection.cells:
        row_index, _ = event.selection.cells[0]
        open_slide(shown[row_index].slide_id)
