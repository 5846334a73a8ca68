"""A worklist of 100,000 slides in a real browser."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.viewer_clients import milliseconds
from pipeline.project import Project
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

SLIDES = 100_000
LINKS_PER_FILE = 30_000
"""Hard links per file; file systems allow 65,000 (ext4)."""
READ_S = 3_000
SCREEN = {"width": 1920, "height": 1080}
_WATCH = """new MutationObserver((_, observer) => {
    if (document.querySelector("tbody a.gs-go")) {
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => (window.firstRowMs = performance.now())));  // once it is painted
    }
}).observe(document, { childList: true, subtree: true });"""
_FIRST_ROW_MS = """() => new Promise((done) => {
    const look = () => (window.firstRowMs ? done(window.firstRowMs) : setTimeout(look, 20));
    look();
})"""


def worklist(_: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure the first view in an empty browser while slides are still being read, and the rest afterwards."""
    from playwright.sync_api import sync_playwright

    root = made_worklist(project.root.parent / "worklist", SLIDES)
    times: dict[str, list[float]] = {"first page": [], "another look": [], "filter": [], "sort": [], "gallery": []}
    with started_app(root, root / "server.log") as app, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        start = time.perf_counter()
        page = _watched(browser.new_context(viewport=SCREEN))  # type: ignore[arg-type]
        while_read_ms = _opened(page, app.url)
        page.get_by_text(f"of {SLIDES:,} slides").wait_for()
        page.get_by_text("Still reading").wait_for(state="detached", timeout=1000 * READ_S)
        read_s = time.perf_counter() - start
        for index in range(max(5, moves // 4)):
            with browser.new_context(viewport=SCREEN) as context:  # type: ignore[arg-type]
                fresh = _watched(context)
                times["first page"].append(_opened(fresh, app.url))
                times["another look"].append(_opened(fresh, f"{app.url}/?page={index + 2}"))
                _look_around(fresh, app.url, index, times)
        browser.close()
    measured = {name: milliseconds(times_ms) for name, times_ms in times.items()}
    return {"slides": SLIDES, "while_read_ms": round(while_read_ms), "read_s": round(read_s), **measured}


def _look_around(page: Page, url: str, index: int, times: dict[str, list[float]]) -> None:
    _opened(page, url)
    page.wait_for_timeout(500)
    wanted = f"{7_919 * (index + 1) % SLIDES:06d}"
    start = time.perf_counter()
    page.get_by_role("searchbox", name="Filter").fill(wanted)
    page.get_by_text(f"1 of {SLIDES:,} slides").wait_for()
    times["filter"].append(1000 * (time.perf_counter() - start))
    _opened(page, url)
    start = time.perf_counter()
    page.get_by_role("link", name="Highest hotspot").click()
    page.get_by_role("link", name="Highest hotspot ▼").wait_for()
    page.get_by_role("cell", name="0.97").first.wait_for()
    times["sort"].append(1000 * (time.perf_counter() - start))
    start = time.perf_counter()
    page.get_by_text("Gallery").click()
    page.locator(".gs-card").nth(49).wait_for()
    times["gallery"].append(1000 * (time.perf_counter() - start))


def _watched(context: BrowserContext) -> Page:
    context.add_init_script(_WATCH)
    return context.new_page()


def _opened(page: Page, url: str) -> float:
    """Milliseconds from the start of navigation until a frame with the first row, by the page's clock."""
    page.goto(url)
    return float(page.evaluate(_FIRST_ROW_MS))


def made_worklist(root: Path, count: int) -> Path:
    """Project of `count` small slides, every tenth with predictions. Their stores have only the parts a list reads;
    the first few also have the pixels of a thumbnail."""
    if (root / "made").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    small = make_project(_folder(root / "template"))
    for index in range(count):
        _make_store(Project(root), small.store_path(SLIDE_ID), index)
        if index % 10 == 0:
            folder = Project(root).result_dir(_name(index), MODEL_ID)
            folder.mkdir(parents=True)
            shutil.copy(small.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json", folder)
    (root / "made").touch()
    return root


def _make_store(project: Project, template: Path, index: int) -> None:
    store, own = project.store_path(_name(index)), template.with_name(f"part-{index // LINKS_PER_FILE}")
    if not own.exists():
        shutil.copytree(template, own)
    files = [path.relative_to(own) for path in own.rglob("*") if path.is_file()] if index < 100 else _LISTED
    for part in files:
        if part.parts[0] == "predictions" and index % 10:
            continue
        (store / part.parent).mkdir(parents=True, exist_ok=True)
        if part != Path("zarr.json"):
            os.link(own / part, store / part)
    text = (template / "zarr.json").read_text()
    (store / "zarr.json").write_text(text.replace(SLIDE_ID, _name(index)))


_LISTED = [
    Path(part, "zarr.json")
    for part in ("", "0", "0/0", "0/1", "0/labels/tissue", "predictions", f"predictions/{MODEL_ID}")
]
"""Files of a store that a list reads."""


def _name(index: int) -> str:
    return f"slide-{index:06d}"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
