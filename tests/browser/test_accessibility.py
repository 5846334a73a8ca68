"""Every page under axe-core: no serious finding, light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import Server, wait_for
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = {
    "worklist": "",
    "slide": f"?slide={SLIDE_ID}&model={MODEL_ID}",
    "side by side": f"?compare={SLIDE_ID},{SLIDE_ID}~",
    "studies": "?study",
    "check of the screen": "?check=screen",
}
READY = {
    "slide": "window.__gemslide && window.__gemslide.isSettled() && window.__gemslide.hasOverlay()",
    "side by side": "window.__gemslideCompare && window.__gemslideCompare.isSettled()",
    "check of the screen": (
        "[...document.querySelectorAll('*')].some((at) => at.shadowRoot && at.shadowRoot.querySelector('.calibration'))"
    ),
}
SERIOUS = ("serious", "critical")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_serious_finding(page: Page, server: Server, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{server.url}/{PAGES[name]}")
    page.get_by_text("Research use only").first.wait_for()
    wait_for(page, READY.get(name, "document.querySelector('.stApp') && !document.querySelector('[data-stale=true]')"))

    assert serious(page) == []


def test_a_serious_finding_would_be_found(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_text("1 of 1 slides").wait_for()
    page.evaluate("document.body.append(document.createElement('input'))")
    assert any("label" in finding for finding in serious(page))


def serious(page: Page) -> list[str]:
    """What axe-core finds, in shadow roots as well."""
    response = Axe().run(page).response
    return [
        f"{violation['id']} {node['target']}: {node.get('failureSummary', '')}"
        for violation in response["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]
