"""Tiles and crops of a stack are of the focal plane that their link names, and of the default one without a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pathology_app.slides import presenters
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.overlays import layers_of
from pathology_app.tiles.review_routes import review_routes
from pathology_app.tiles.routes import viewer_routes
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.layers.overlays import Predictions, write_predictions
from pipeline.store.reading.reader import StoreReader
from tests.pathology_app.routes_in_process import get_from
from tests.pipeline.make import PLAIN_TISSUE, sample_image
from tests.pipeline.slides.make_dicom import write_dicom, write_dicom_stack

HEIGHTS_UM = (-1.0, 0.0, 1.0)
MODEL_ID = "m-12345678"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> SlideCache:
    """A stack with predictions from its upper plane, and a slide with a single plane."""
    folder = tmp_path_factory.mktemp("planes")
    write_dicom_stack(
        folder / "stack.dcm",
        {um: sample_image(600, 400, seed) for seed, um in enumerate(HEIGHTS_UM)},
        tile_wh=(256, 256),
    )
    write_dicom(folder / "single.dcm", sample_image(600, 400), tile_wh=(256, 256))
    project = Project(folder / "p")
    for name in ("stack", "single"):
        ingest_slide(IngestRequest(folder / f"{name}.dcm", name), project, IngestConfig(tissue=PLAIN_TISSUE))
    reader = StoreReader(project.store_path("stack"))
    attributes = {"made_from": {"source_sha256": reader.source_sha256, "tiles": {"plane_um": 1.0}}}
    values = np.full((2, 4, 6), 0.5, np.float16)
    predictions = Predictions(MODEL_ID, ("no", "yes"), values, 100.0, 100.0, attributes)
    write_predictions(reader.folder, predictions, mpp0=reader.mpp0)
    return SlideCache(project)


def ask(cache: SlideCache, url: str, **headers: str):
    return get_from([*viewer_routes(cache), *review_routes(cache)], url, **headers)


def stream_of(cache: SlideCache, um: float) -> bytes:
    stream = StoreReader(cache.project.store_path("stack"), um).chunk(0, 0, 2)
    assert stream
    return stream


@pytest.mark.parametrize(("plane", "um"), [("", 0.0), ("z0/", -1.0), ("z1/", 0.0), ("z2/", 1.0)])
def test_a_tile_holds_the_scanner_s_own_bytes_of_its_plane(cache: SlideCache, plane: str, um: float) -> None:
    answer = ask(cache, f"/tiles/stack/{plane}0/1_0")

    assert answer.status_code == 200
    assert stream_of(cache, um) in answer.content


def test_tiles_of_different_planes_are_not_confused_by_caches(cache: SlideCache) -> None:
    tags = {ask(cache, f"/tiles/stack/{plane}0/1_0").headers["ETag"] for plane in ("", "z0/", "z2/")}
    assert len(tags) == 3
    tag = ask(cache, "/tiles/stack/z2/0/1_0").headers["ETag"]
    assert ask(cache, "/tiles/stack/z2/0/1_0", **{"If-None-Match": tag}).status_code == 304
    assert ask(cache, "/tiles/stack/z0/0/1_0", **{"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        ("/tiles/stack/z3/0/0_0", 404, "no_such_tile"), ("/tiles/single/z1/0/0_0", 404, "no_such_tile"),
        ("/tiles/stack/z1000/0/0_0", 400, "bad_link"), ("/tiles/stack/z-1/0/0_0", 400, "bad_link"),
        ("/tiles/stack/z/0/0_0", 400, "bad_link"), ("/tiles/stack/z٢/0/0_0", 400, "bad_link"),
        ("/crops/stack/100_100.jpg?z=3", 404, "no_such_tile"), ("/crops/stack/100_100.jpg?z=x", 400, "bad_link"),
        ("/crops/stack/100_100.jpg?z=", 400, "bad_link"),
    ],
)  # fmt: skip
def test_a_link_to_no_plane_is_refused(cache: SlideCache, url: str, status: int, code: str) -> None:
    answer = ask(cache, url)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_single_plane_may_be_named_too(cache: SlideCache) -> None:
    assert ask(cache, "/tiles/single/z0/0/1_0").content == ask(cache, "/tiles/single/0/1_0").content
    assert presenters.slide_data(cache.slide("single"))["planes"] is None


def test_a_hotspot_s_crop_shows_the_plane_that_was_predicted(cache: SlideCache) -> None:
    slide, opened = cache.slide("stack"), cache.predictions("stack", MODEL_ID)
    link = presenters.crops_of(slide, opened.predictions).format(x_px0=300, y_px0=200)

    shown, default = (ask(cache, url).content for url in (link, link.replace("&z=2", "")))
    assert "&z=2" in link
    assert shown != default
    assert shown == ask(cache, "/crops/stack/300_200.jpg?z=2").content


def test_the_viewer_is_told_the_heights_and_which_plane_was_predicted(cache: SlideCache) -> None:
    data = presenters.slide_data(cache.slide("stack"))
    assert (data["planes"]["heights_um"], data["planes"]["first"]) == (list(HEIGHTS_UM), 1)
    assert "/tiles/stack/z{plane}/{level}/{col}_{row}?v=" in data["planes"]["tile_url"]

    layers, _ = layers_of(cache, "stack", [MODEL_ID], (MODEL_ID, 1), [])
    notes = {layer["note"] for layer in layers if layer["kind"] == "prediction"}
    assert notes == {"Predicted from the focal plane at +1 µm."}


def test_a_plane_is_read_anew_when_the_store_was_replaced(cache: SlideCache, tmp_path: Path) -> None:
    ask(cache, "/tiles/stack/z2/0/1_0")
    before = cache.slide("stack").version
    planes = {um: sample_image(600, 400, 10 + seed) for seed, um in enumerate(HEIGHTS_UM)}
    write_dicom_stack(tmp_path / "other.dcm", planes, tile_wh=(256, 256))
    project = Project(tmp_path / "p")
    done = ingest_slide(IngestRequest(tmp_path / "other.dcm", "stack"), project, IngestConfig(tissue=PLAIN_TISSUE))
    store = cache.project.store_path("stack")
    store.rename(tmp_path / "old")
    done.store.rename(store)

    answer = ask(cache, f"/tiles/stack/z2/0/1_0?v={cache.slide('stack').version}")
    assert cache.slide("stack").version != before
    assert stream_of(cache, 1.0) in answer.content
