"""A slide's report is one A4 page, loads nothing from elsewhere, and has nothing wider than the screen."""

import json
import re

import pytest

from pipeline.inference.results.files import write_results
from pipeline.inference.results.slide_report import About
from pipeline.settings.config import InferConfig
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.make_store import jfif, jpeg_level, make_store
from tests.pipeline.export.predicted import made_predictions
from tests.pipeline.make import halved, sample_image

CARD = (
    "## Intended use\n"
    + "To find areas for a pathologist to look at. " * 8
    + "\n## Limits\n"
    + "One scanner only. " * 20
)
CONFIG = {
    "architecture": "resnet_v2-110",
    "patch_size_pixels": 1024,
    "spacing_um_px": 0.5,
    "gemslide": {"run_id": "20261120T101112Z-a1b2c3", "epoch": 12, "weights_sha256": "ab" * 32},
}
QC = {
    "verdict": "review",
    "reasons": ["blur: 12 % of the tissue is out of focus, 10 % are allowed.", "pen: 4 % under ink."],
    "scores": {
        name: {"threshold": 0.5, "share_above": 0.12, "max_share": 0.1} for name in ("blur", "pen", "fold", "bubble")
    },
}


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "card.md").write_text(CARD)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "metrics.json").write_text(json.dumps({"accuracy": 0.9123, "balanced_accuracy": 0.8812, "auc": 0.9541}))
    levels = [jpeg_level(pixels, 256, jfif("420")) for pixels in halved(sample_image(1330, 970), 1)]
    reader = StoreReader(make_store(folder / "slides/R-1.ome.zarr", levels))
    seconds = dict.fromkeys(("read", "decode", "transfer", "compute", "write", "waiting"), 12.5)
    facts = {"tiles": 54, "tiles_beside_damage": 2, "flags": ["Its colours are far from the model's training tiles."]}
    config = InferConfig(formats=("report",), threshold=0.2, hotspot_min_distance_um=70)
    (folder / "out").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.inference.results.slide_facts.stored_summary", lambda _: QC)
        write_results(reader, made_predictions(), folder / "out", config, About(folder, None, seconds, facts))
    return (folder / "out/slide_report.html").read_text(encoding="utf-8")


def test_it_prints_on_one_page_of_a4(page, html):
    page.set_content(html)

    pdf = page.pdf(prefer_css_page_size=True, print_background=True)

    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1


@pytest.mark.parametrize("width_px", [1280, 400])
def test_nothing_is_wider_than_the_screen_and_every_image_is_shown(page, html, width_px):
    page.set_viewport_size({"width": width_px, "height": 900})
    page.set_content(html)

    assert page.evaluate("document.documentElement.scrollWidth") <= width_px
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 100)")
    assert page.evaluate("document.images.length") == 9
    assert page.locator(".use").inner_text() == "Research use only. Not for diagnosis."
