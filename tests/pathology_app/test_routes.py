"""The HTTP routes, asked in process."""

from __future__ import annotations

import asyncio
import io
import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.applications import Starlette

from pathology_app.tiles.cache import SlideCache
from pathology_app.tiles.routes import CACHE_CONTROL, viewer_routes
from pathology_app.viewer.bundle import bundle_path
from pipeline.project import Project
from tests.pathology_app.small_project import DAMAGED_TILES, MODEL_ID, SLIDE_ID, small_predictions
from tests.pipeline.make import ingest, sample_image, write_aperio_j2k


def get(cache: SlideCache, url: str, **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Starlette(routes=viewer_routes(cache)))
        async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
            return await client.get(url, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize(("level", "col", "row"), [(0, 0, 0), (0, 3, 2), (0, 7, 5), (1, 1, 1)])
def test_a_tile_is_the_stores_own_jpeg(cache: SlideCache, level: int, col: int, row: int) -> None:
    response = get(cache, f"/tiles/{SLIDE_ID}/{level}/{col}_{row}.jpg")

    assert response.status_code == 200
    assert response.headers["content-type"] == "image/jpeg"
    assert response.headers["cache-control"] == CACHE_CONTROL
    assert response.content == cache.slide(SLIDE_ID).reader.chunk(level, row, col)


def test_a_known_tile_is_not_sent_again(cache: SlideCache) -> None:
    first = get(cache, f"/tiles/{SLIDE_ID}/0/1_1.jpg")
    again = get(cache, f"/tiles/{SLIDE_ID}/0/1_1.jpg", **{"If-None-Match": first.headers["etag"]})
    other = get(cache, f"/tiles/{SLIDE_ID}/0/1_2.jpg", **{"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert other.status_code == 200


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        (f"/tiles/{SLIDE_ID}/2/0_0.jpg", 404, "no_such_tile"),
        (f"/tiles/{SLIDE_ID}/0/8_0.jpg", 404, "no_such_tile"),
        (f"/tiles/{SLIDE_ID}/0/0_6.jpg", 404, "no_such_tile"),
        ("/tiles/nobody/0/0_0.jpg", 404, "unknown_name"),
        (f"/tiles/{SLIDE_ID}/0/-1_0.jpg", 400, "bad_link"),
        (f"/tiles/{SLIDE_ID}/0/0_0.png", 400, "bad_link"),
        (f"/tiles/{SLIDE_ID}/0/{'9' * 5000}_0.jpg", 400, "bad_link"),
        (f"/tiles/{SLIDE_ID}", 400, "bad_link"),
        ("/tiles/..%2F..%2Fetc/0/0_0.jpg", 400, "bad_link"),
        ("/tiles/%2e%2e/0/0_0.jpg", 400, "bad_link"),
        (f"/tiles/.{SLIDE_ID}.partial/0/0_0.jpg", 400, "bad_link"),
        (f"/tiles/{'a' * 65}/0/0_0.jpg", 400, "bad_link"),
        ("/thumbnails/..%2Fsource.jpg", 400, "bad_link"),
        (f"/overlays/{SLIDE_ID}/{MODEL_ID}/2.png", 404, "no_such_tile"),
        (f"/overlays/{SLIDE_ID}/nobody/0.png", 404, "unknown_name"),
        (f"/overlays/{SLIDE_ID}/..%2F0/0.png", 400, "bad_link"),
        (f"/damaged/{SLIDE_ID}.png", 404, "unknown_name"),
        (f"/damaged/{SLIDE_ID}.jpg", 400, "bad_link"),
        ("/damaged/..%2Fsource.png", 400, "bad_link"),
        ("/viewer/viewer-000.js", 400, "bad_link"),
    ],
)
def test_bad_links_get_one_json_error(cache: SlideCache, url: str, status: int, code: str) -> None:
    response = get(cache, url)

    assert response.status_code == status
    assert response.json()["code"] == code
    assert response.json()["message"]
    assert response.headers["cache-control"] == "no-store"


def test_a_damaged_shard_gets_one_json_error(project: Project, tmp_path: Path) -> None:
    damaged = Project(tmp_path)
    shutil.copytree(project.store_path(SLIDE_ID), damaged.store_path(SLIDE_ID))
    shard = damaged.store_path(SLIDE_ID) / "0" / "0" / "c" / "0" / "0" / "0"
    shard.write_bytes(shard.read_bytes()[:-10])

    response = get(SlideCache(damaged), f"/tiles/{SLIDE_ID}/0/0_0.jpg")

    assert response.status_code == 500
    assert response.json()["code"] == "corrupt_tile"
    assert f"slides/{SLIDE_ID}.ome.zarr" in response.json()["message"]
    assert str(tmp_path) not in response.text


def test_the_overlay_holds_every_cell(cache: SlideCache) -> None:
    positive = small_predictions().probabilities_cyx[1].astype(np.float32)

    response = get(cache, f"/overlays/{SLIDE_ID}/{MODEL_ID}/1.png")

    codes = np.asarray(Image.open(io.BytesIO(response.content)))
    assert response.headers["content-type"] == "image/png"
    np.testing.assert_array_equal(codes == 0, np.isnan(positive))
    predicted = codes > 0
    np.testing.assert_allclose((codes[predicted] - 1) / 254, positive[predicted], atol=1 / 254)


def test_thumbnail_and_viewer_are_served(cache: SlideCache) -> None:
    thumbnail = get(cache, f"/thumbnails/{SLIDE_ID}.jpg")
    assert Image.open(io.BytesIO(thumbnail.content)).size == (320, 231)

    viewer = get(cache, f"/viewer/{bundle_path().name}")
    assert viewer.headers["content-type"].startswith("text/javascript")
    assert viewer.content == bundle_path().read_bytes()


def test_a_slide_written_again_is_read_again(project: Project, tmp_path: Path) -> None:
    copy = Project(tmp_path)
    shutil.copytree(project.store_path(SLIDE_ID), copy.store_path(SLIDE_ID))
    cache = SlideCache(copy)
    before = cache.slide(SLIDE_ID)
    assert cache.slide(SLIDE_ID) is before

    root = copy.store_path(SLIDE_ID) / "zarr.json"
    content = root.read_bytes()
    root.unlink()
    root.write_bytes(content)

    assert cache.slide(SLIDE_ID).version != before.version


def test_a_jpeg_2000_slide_is_shown_in_jpegs(tmp_path: Path) -> None:
    """Browsers do not know JPEG 2000; chunks at the edges are whole, as those of a JPEG slide."""
    pixels = sample_image(700, 500)
    source = write_aperio_j2k(tmp_path / "a.svs", pixels, compression=33005)
    ingest(source, tmp_path, slide_id="j2k", smallest_level_px=350)
    cache = SlideCache(Project(tmp_path))
    reader = cache.slide("j2k").reader
    assert [level.codec for level in reader.levels] == ["imagecodecs_jpeg2k", "zstd"]

    tiles = [get(cache, f"/tiles/j2k/{link}.jpg") for link in ("0/0_0", "0/2_1", "1/0_0")]
    thumbnail = get(cache, "/thumbnails/j2k.jpg")

    for tile, level in zip(tiles, (0, 0, 1), strict=True):
        assert (tile.status_code, tile.headers["content-type"]) == (200, "image/jpeg")
        side = reader.levels[level].chunk_px
        assert (Image.open(io.BytesIO(tile.content)).format, Image.open(io.BytesIO(tile.content)).size) == (
            "JPEG", (side, side),
        )  # fmt: skip
    shown = np.asarray(Image.open(io.BytesIO(tiles[0].content))).astype(int)
    assert np.abs(shown - pixels[:256, :256]).mean() < 8  # noise of ±20 through a JPEG
    assert Image.open(io.BytesIO(thumbnail.content)).size == (320, 229)
    assert get(cache, "/tiles/j2k/0/3_0.jpg").status_code == 404


def test_the_mask_of_damage_is_opaque_where_the_file_is_damaged(damaged_project: Project) -> None:
    response = get(SlideCache(damaged_project), f"/damaged/{SLIDE_ID}.png")

    grey_alpha = np.asarray(Image.open(io.BytesIO(response.content)))
    assert response.headers["content-type"] == "image/png"
    assert grey_alpha.shape == (6, 8, 2)
    assert set(zip(*np.nonzero(grey_alpha[..., 1]), strict=True)) == DAMAGED_TILES
