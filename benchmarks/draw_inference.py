"""Figures of docs/reference/inference.md, from the results of the demonstration's inference.

    make demo; .venv/bin/python -m benchmarks.draw_inference demo

Writes docs/images/inference/. Needs Chromium.
"""

from __future__ import annotations

import argparse
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

OUT = Path(__file__).parents[1] / "docs/images/inference"
SLIDE = "demo-test-positive"
CHROMIUM = "/usr/bin/chromium"
MAX_WIDTH_PX = 1100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path)
    results = next((parser.parse_args().project / "results").iterdir())
    OUT.mkdir(parents=True, exist_ok=True)
    (heatmap,) = (results / SLIDE).glob("heatmap_*.png")
    keep(Image.open(heatmap), "heatmap.jpg")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--headless", "--no-sandbox"])
        page = browser.new_page(viewport={"width": MAX_WIDTH_PX, "height": 900})
        page.goto((results / SLIDE / "slide_report.html").resolve().as_uri())
        keep(Image.open(BytesIO(page.screenshot(full_page=True))), "report.jpg")
        browser.close()


def keep(image: Image.Image, name: str) -> None:
    """Save an image at the width at which a page shows it: no wider than its text."""
    image = image.convert("RGB")
    if image.width > MAX_WIDTH_PX:
        image = image.resize((MAX_WIDTH_PX, round(image.height * MAX_WIDTH_PX / image.width)), Image.Resampling.LANCZOS)
    image.save(OUT / name, quality=85, optimize=True)


if __name__ == "__main__":
    main()
