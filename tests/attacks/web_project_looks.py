"""Views of a damaged project: its worklist, the slide's page, and tiles.

Kept in its own module because Streamlit's AppTest replaces `__main__`, where another process could not find it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx
from starlette.applications import Starlette
from streamlit.testing.v1 import AppTest

import pathology_app
from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.facts import read_facts
from pathology_app.slides.index.sweep import Batch, Sweeper
from pathology_app.slides.index.table import SlideTable
from pathology_app.slides.index.wanted import Wanted
from pathology_app.tiles.exports import export_routes
from pathology_app.tiles.routes import viewer_routes
from pipeline.project import Project
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID

LONGEST_S = 20.0
"""Limit for all views of one project on a machine busy with other tests; alone they take half a second."""
HEALTHY = "S-002"
HARMLESS = ("hotspots: []",)
MAIN = Path(pathology_app.__file__).with_name("main.py")


def look(root: Path, name: str) -> list[str]:
    """Open a project's worklist, the damaged slide's page and both slides' tiles."""
    os.environ[PROJECT_VARIABLE] = str(root)
    try:
        return [*_rows(root, name), *_answers(root), *_page(root, name)]
    except Exception as error:  # the finding that this attack looks for
        return [f"{type(error).__name__}: {error!s:.300}"]


def _rows(root: Path, name: str) -> list[str]:
    cache = SlideCache(Project(root))
    table, slide_ids = SlideTable(), cache.project.slide_ids()
    table.set_names(slide_ids)
    for line in Sweeper(cache.project).sweep():
        table.put(Batch.model_validate_json(line))
    listed = table.find(Wanted(sort="score"), skip=0, limit=len(slide_ids))
    rows = {
        listed_slide.slide_id: listed_slide.facts or read_facts(cache, listed_slide.slide_id) for listed_slide in listed
    }
    findings = []
    if HEALTHY not in rows or rows[HEALTHY].note or not rows[HEALTHY].size_wh_px0:
        findings.append(f"the other slide's row is {rows.get(HEALTHY)}")
    if SLIDE_ID not in rows:
        findings.append("the slide has no row")
    elif name.startswith(("root: ", "hotspots: ")) and "missing" not in name and name not in HARMLESS:
        if not rows[SLIDE_ID].note:
            findings.append("its row says nothing of it")
        if rows[SLIDE_ID].top_score() is not None:
            findings.append("its row has a score")
    findings += [f"{slide_id}: the row names the folder" for slide_id, row in rows.items() if str(root) in row.note]
    return findings


def _answers(root: Path) -> list[str]:
    links = [f"/thumbnails/{SLIDE_ID}.jpg", f"/tiles/{SLIDE_ID}/1/0_0", f"/overlays/{SLIDE_ID}/{MODEL_ID}/1.png"]
    links += [f"/heatmaps/{SLIDE_ID}/{MODEL_ID}/1.png", f"/exports/{SLIDE_ID}/{MODEL_ID}/predictions.csv"]
    links += [f"/thumbnails/{HEALTHY}.jpg", f"/tiles/{HEALTHY}/1/0_0", f"/colour/{SLIDE_ID}"]

    async def ask() -> list[httpx.Response]:
        cache = SlideCache(Project(root))
        transport = httpx.ASGITransport(Starlette(routes=[*viewer_routes(cache), *export_routes(cache)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
            return [await client.get(link) for link in links]

    findings = []
    for link, response in zip(links, asyncio.run(ask()), strict=True):
        if HEALTHY in link and response.status_code != 200:
            findings.append(f"{link}: {response.status_code}")
        if response.status_code != 200 and not response.json()["message"]:
            findings.append(f"{link}: says nothing")
        if str(root).encode() in response.content:
            findings.append(f"{link}: names the folder")
    return findings


def _page(root: Path, name: str) -> list[str]:
    page = AppTest.from_file(str(MAIN), default_timeout=LONGEST_S)
    page.query_params["slide"] = SLIDE_ID
    page.run()
    kinds = ("error", "warning", "info", "caption", "markdown")
    drawn = [element.value for kind in kinds for element in page.get(kind)]
    findings = [f"its page ends in {error.message!s:.200}" for error in page.exception]
    if any(str(root) in text for text in drawn):
        findings.append("its page names the folder")
    if name.startswith("hotspots: ") and name not in HARMLESS and "None found." in drawn:
        findings.append("unknown hotspots are shown as none")
    return findings
