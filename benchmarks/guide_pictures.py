"""Figures of docs/how_to/read_slides.md: the app on the demonstration's slides, in real Chromium.

    make demo
    .venv/bin/python -m benchmarks.guide_pictures [--project demo] [--only WORD …]

Writes docs/images/guide/*.jpg. The project is copied first, to keep drawings and signatures for the figures out.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from benchmarks.pages import ROOT
from tests.browser.conftest import CHROMIUM, FLAGS, wait_for
from tests.pathology_app.small_reading import STUDY, begin_reading_study
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = ROOT / "docs" / "images" / "guide"
SCREEN = {"width": 1280, "height": 800}
SLIDE = "demo-test-positive"
QUALITY = 82
VIEWER, COMPARE = "window.__gemslide", "window.__gemslideCompare"


def worklist(page: Page, app: StartedApp) -> None:
    page.goto(app.url)
    page.get_by_role("link", name=SLIDE).first.wait_for()
    pictures = '[...document.querySelectorAll(\'img[src*="/thumbnails/"], img[src*="/heatmaps/"]\')]'
    wait_for(page, f"{pictures}.length > 4 && {pictures}.every((each) => each.complete && each.naturalWidth)")


def slide(page: Page, app: StartedApp) -> None:
    page.goto(f"{app.url}/?slide={SLIDE}")
    wait_for(page, f"{VIEWER} && {VIEWER}.isSettled() && {VIEWER}.hasOverlay()")


def hotspot(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.keyboard.press("n")
    _settle(page)
    box = page.locator(".marks").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.get_by_role("row", name="Place").wait_for()


def layers(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.get_by_label("Outline", exact=True).check()
    page.locator("summary", has_text="Tissue").first.click()
    page.get_by_label("Show Tissue", exact=True).check()
    _settle(page)


def measure(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.keyboard.press("4")
    _settle(page)
    page.keyboard.press("m")
    for x, y in ((300, 330), (520, 420)):
        page.mouse.click(x, y)
    page.keyboard.press("M")
    for x, y in ((560, 480), (760, 470), (740, 620), (590, 640), (590, 640)):
        page.mouse.click(x, y)
    page.keyboard.press("c")
    page.keyboard.press("Enter")  # place the circle at the centre of the screen
    for index, (x, y) in enumerate(((420, 520), (460, 560), (520, 540))):
        page.keyboard.press(str(1 + index % 2))
        page.mouse.click(x, y)
    wait_for(page, f"{VIEWER}.annotations.isSaved()")
    page.keyboard.press("-")
    _settle(page)


def keys(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()


def compare(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.keyboard.press("x")
    wait_for(page, f"{COMPARE} && {COMPARE}.isSettled()")
    page.keyboard.press("4")
    wait_for(page, f"{COMPARE}.isSettled()")
    page.keyboard.press("w")
    page.keyboard.press("c")
    page.keyboard.press("Enter")
    middle = page.locator(".pane .marks").nth(1).bounding_box()
    assert middle
    for index in range(5):
        page.keyboard.press("1" if index % 3 else "2")
        page.mouse.click(middle["x"] + 160 + 30 * index, middle["y"] + 260 + 40 * (index % 3))
    wait_for(page, f"{COMPARE}.kinds(1).filter((kind) => kind === 'mark').length === 5")


def picker(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.keyboard.press("x")
    wait_for(page, f"{COMPARE} && {COMPARE}.isSettled()")
    page.keyboard.press("s")
    page.get_by_role("button", name="same case").first.wait_for()
    page.wait_for_timeout(1000)  # thumbnails


def bookmark(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.keyboard.press("n")
    _settle(page)
    page.keyboard.press("*")
    page.get_by_role("textbox", name="Note of the bookmark").first.fill("ask a colleague")
    page.get_by_role("textbox", name="Note of the bookmark").first.press("Enter")
    wait_for(page, f"{VIEWER}.annotations.isSaved()")
    page.wait_for_timeout(1000)  # its picture


def report(page: Page, app: StartedApp) -> None:
    page.goto(f"{app.url}/reports/{SLIDE}/report.html")
    page.get_by_role("heading", name="Report").or_(page.get_by_role("heading", name=SLIDE)).first.wait_for()


def annotate(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.keyboard.press("n")
    _settle(page)
    page.keyboard.press("a")
    page.keyboard.press("g")
    corners = ((330, 330), (560, 300), (640, 480), (520, 600), (360, 560))
    for x, y in corners:
        page.mouse.click(x, y)
    page.mouse.click(*corners[0])
    page.get_by_label("Class", exact=True).last.select_option("New class…")
    page.get_by_role("textbox", name="New class").fill("carcinoma")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Note").fill("ask a colleague")
    page.get_by_role("textbox", name="Note").blur()
    wait_for(page, f"{VIEWER}.annotations.isSaved()")
    page.keyboard.press("s")


def review(page: Page, app: StartedApp) -> None:
    slide(page, app)
    page.get_by_role("button", name="Review").click()
    page.get_by_text("Disagree", exact=True).click()
    page.get_by_label("Your label").fill("benign")
    page.get_by_label("Comment").fill("crush artefact")
    page.get_by_label("Sign with your name").fill("Ada")


def reading(page: Page, app: StartedApp) -> None:
    page.goto(f"{app.url}/?study={STUDY}&view=read&reader=r1")
    page.get_by_role("button", name="Start reading").click()
    wait_for(page, f"{VIEWER} && {VIEWER}.isSettled()")
    page.keyboard.press("4")
    page.get_by_text("malignant", exact=True).click()
    page.get_by_label("How sure are you?").fill("70")
    page.keyboard.press("Tab")
    wait_for(page, f"{VIEWER}.isSettled()")
    page.wait_for_load_state("networkidle")


def screen(page: Page, app: StartedApp) -> None:
    page.goto(f"{app.url}/?check=screen")
    page.get_by_role("heading", name="Check this screen").wait_for()
    page.wait_for_load_state("networkidle")


STEPS: dict[str, Callable[[Page, StartedApp], None]] = {
    "worklist": worklist, "slide": slide, "hotspot": hotspot, "layers": layers, "measure": measure, "keys": keys,
    "annotate": annotate, "compare": compare, "picker": picker, "bookmark": bookmark, "report": report,
    "review": review, "screen": screen, "reading": reading,
}  # fmt: skip


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, default=Path("demo"))
    parser.add_argument("--only", nargs="*", default=[], help="pictures whose name holds one of these words")
    options = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        project = Path(folder) / "demo"
        shutil.copytree(options.project, project)
        _make_case(project)
        begin_reading_study(project, [SLIDE], readers=["r1"])
        with started_app(project, Path(folder) / "server.log") as app:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for name, step in STEPS.items():
                if not options.only or any(word in name for word in options.only):
                    page = browser.new_page(viewport=SCREEN, color_scheme="light")  # type: ignore[arg-type]
                    step(page, app)
                    _save(page, name)
                    page.close()
            browser.close()


def _make_case(project: Path) -> None:
    """Name the demonstration's slides as those of one case."""
    names = sorted(path.name.split(".")[0] for path in (project / "slides").iterdir())
    names = [SLIDE, *(name for name in names if name != SLIDE)]
    rows = [f"{name},made,P-1,{'A1' if index < 2 else f'B{index}'},DAB" for index, name in enumerate(names)]
    (project / "cohort.csv").write_text("\n".join(["slide_id,path,patient_id,block,stain", *rows]) + "\n")


def _settle(page: Page) -> None:
    wait_for(page, f"{VIEWER}.isSettled() && {VIEWER}.hasOverlay()")


def _save(page: Page, name: str) -> None:
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.save(PICTURES / f"{name}.jpg", quality=QUALITY, optimize=True)
    print(f"docs/images/guide/{name}.jpg")


if __name__ == "__main__":
    main()
