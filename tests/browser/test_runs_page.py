"""A coordinator starts a run in a real browser, follows it while others view slides, and stops it."""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from pathology_app.jobs.start import running_ids
from tests.browser.conftest import ARTIFACTS
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

SLIDES = 300
QUICK_S = 0.5
"""Limit for a tile, which takes a few ms; generous because the machine may be busy."""


def test_a_run_is_started_and_stopped_while_tiles_come_quickly(page: Page, tmp_path: Path) -> None:
    project = make_project(tmp_path)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "source.tiff").rename(tmp_path / "incoming" / "source.tiff")
    rows = [f"source.tiff,R-{number:02}\n" for number in range(SLIDES)]
    (tmp_path / "incoming" / "cohort.csv").write_text("path,slide_id\n" + "".join(rows))
    with started_app(tmp_path, tmp_path / "server.log") as app:
        page.goto(app.url)
        page.get_by_role("button", name="Runs").click()
        page.get_by_role("button", name="Ingest slides").click()
        page.get_by_text("Manifest", exact=True).first.wait_for()
        page.get_by_text("--workers=1 -- incoming/cohort.csv").wait_for()
        page.get_by_role("button", name="Start …").click()
        page.get_by_role("button", name="Start now").click()
        page.get_by_text("The run has started. This page follows it.").wait_for()
        page.get_by_text(re.compile(rf"^[1-9]\d* of {SLIDES}$")).first.wait_for()  # it is in the middle of its work

        seconds = []
        while len(seconds) < 40:
            start = time.perf_counter()
            with urlopen(f"{app.url}/tiles/{SLIDE_ID}/0/{len(seconds) % 3}_1") as answer:
                assert len(answer.read()) > 1000
            seconds.append(time.perf_counter() - start)
        assert running_ids(project), "the run ended before the tiles were asked for"
        assert statistics.median(seconds) < QUICK_S, seconds

        page.screenshot(path=ARTIFACTS / "run.png", full_page=True)
        page.get_by_role("button", name="Stop …").click()
        page.get_by_role("button", name="Stop this run").click()
        page.get_by_text("Finished slides are kept.").first.wait_for()
        page.get_by_text("stopped", exact=True).wait_for()
        page.screenshot(path=ARTIFACTS / "run-stopped.png", full_page=True)
        page.get_by_role("button", name="Runs").click()
        page.get_by_role("link", name="ingest").focus()
        page.keyboard.press("Enter")
        page.get_by_text("Ingest · 1 manifest").wait_for()
    log_text = (tmp_path / "server.log").read_text()
    assert not [line for line in log_text.splitlines() if "Traceback" in line or "ERROR" in line], log_text
