"""A model's results open at the threshold they were made with, and their hotspots can be reached."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pipeline.project import Project
from pipeline.store.layers.overlays import write_predictions
from tests.browser.conftest import ARTIFACTS, Server, wait_for
from tests.pathology_app.small_project import MODEL_ID, MPP0, SLIDE_ID, small_predictions, write_small_hotspots
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOOK = "window.__gemslide"
FAINT = 0.02
"""The settings' threshold."""


@pytest.fixture(scope="module")
def app_url(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """App with the small slide and a faint model: one position at 0.03, all others below 0.02."""
    project = Project(tmp_path_factory.mktemp("faint"))
    store = shutil.copytree(server.cache.project.store_path(SLIDE_ID), project.store_path(SLIDE_ID))
    usual = small_predictions()
    faint_yx = np.where(np.isnan(usual.probabilities_cyx[1]), np.nan, 0.001).astype(np.float16)
    faint_yx[10, 12] = 0.03
    faint = replace(usual, probabilities_cyx=np.stack([1 - faint_yx, faint_yx]))
    shutil.rmtree(store / "predictions" / MODEL_ID)
    write_predictions(store, faint, mpp0=MPP0)
    write_small_hotspots(project, faint, FAINT)
    with started_app(project.root, project.root / "server.log") as app:
        yield app.url


def test_a_project_predicted_at_0_02_opens_at_0_02_and_its_only_hotspot_is_reached(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/?slide={SLIDE_ID}")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled() && {HOOK}.hasOverlay()")

    assert page.get_by_role("slider", name="Threshold", exact=True).input_value() == "0.02"
    assert page.evaluate(f"{HOOK}.shownHotspots()") == [0]
    page.get_by_text("Hotspots (1)").wait_for()
    page.keyboard.press("n")
    page.get_by_text("Hotspot 1 of 1").wait_for()
    assert page.get_by_text("No hotspot reaches the threshold.").count() == 0
    page.screenshot(path=ARTIFACTS / "faint.png")


def test_the_worklist_shows_a_faint_model_from_its_own_threshold(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/?view=gallery")

    page.get_by_text("from 0.02 to 1; lower values are transparent.").wait_for()
    page.screenshot(path=ARTIFACTS / "faint-worklist.png")
