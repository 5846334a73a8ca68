"""The HTTP routes, asked in process."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pathology_app.tiles.cache import SlideCache
from pathology_app.tiles.routes import CACHE_CONTROL
from pathology_app.tiles.tile_body import MEDIA_TYPE
from pathology_app.viewer.bundle import bundle_path
from pipeline.box import Box
from pipeline.project import Project
from tests.pathology_app.routes_in_process import get
from tests.pathology_app.small_project import (
    DAMAGED_TILES,
    HEIGHT_PX0,
    MODEL_ID,
    SLIDE_ID,
    WIDTH_PX0,
    flip_a_bit,
    small_predictions,
)
from tests.pathology_app.tile_parts import parts_of
from tests.pipeline.make import ingest, sample_image, write_aperio_j2k


def test_a_tile_carries_the_stores_own_streams_each_in_its_place(cache: SlideCache) -> None:
    reader = cache.slide(SLIDE_ID).reader
    chunk_px = reader.levels[0].chunk_px
    last_wh = WIDTH_PX0 - 7 * chunk_px, HEIGHT_PX0 - 5 * chunk_px

    response = get(cache, f"/tiles/{SLIDE_ID}/0/3_2")

    assert response.status_code == 200
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.headers["cache-control"] == CACHE_CONTROL
    sizes = [((c - 6) * chunk_px, (r - 4) * chunk_px, (chunk_px, last_wh[0])[c == 7], (chunk_px, last_wh[1])[r == 5])
             for r in (4, 5) for c in (6, 7)]  # fmt: skip
    assert parts_of(response.content) == [
        (box, reader.chunk(0, row, column))
        for box, (row, column) in zip(sizes, [(4, 6), (4, 7), (5, 6), (5, 7)], strict=True)
    ]


def test_a_level_between_two_of_the_store_is_the_mean_of_the_finer_one(cache: SlideCache) -> None:
    [first, between, last] = cache.slide(SLIDE_ID).screen_levels
    assert (first.downsample, between.downsample, last.downsample) == (1, 2, 4)

    [(box, stream)] = parts_of(get(cache, f"/tiles/{SLIDE_ID}/1/1_1").content)

    shown = np.asarray(Image.open(io.BytesIO(stream))).astype(float)
    width_px, height_px = WIDTH_PX0 // 2 - 512, HEIGHT_PX0 // 2 - 512
    assert (box, shown.shape) == ((0, 0, width_px, height_px), (height_px, width_px, 3))
    whole = cache.slide(SLIDE_ID).reader.read_region(0, Box(1024, 1024, 2 * width_px, 2 * height_px))
    mean = whole.reshape(height_px, 2, width_px, 2, 3).mean((1, 3))
    assert np.abs(shown - mean).mean() < 2.5


def test_a_known_tile_is_not_sent_again(cache: SlideCache) -> None:
    first = get(cache, f"/tiles/{SLIDE_ID}/0/1_1")
    again = get(cache, f"/tiles/{SLIDE_ID}/0/1_1", **{"If-None-Match": first.headers["etag"]})
    other = get(cache, f"/tiles/{SLIDE_ID}/0/1_2", **{"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert other.status_code == 200


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        (f"/tiles/{SLIDE_ID}/3/0_0", 404, "no_such_tile"),
        (f"/tiles/{SLIDE_ID}/0/4_0", 404, "no_such_tile"),
        (f"/tiles/{SLIDE_ID}/0/0_3", 404, "no_such_tile"),
        ("/tiles/nobody/0/0_0", 404, "unknown_name"),
        (f"/tiles/{SLIDE_ID}/0/-1_0", 400, "bad_link"),
        (f"/tiles/{SLIDE_ID}/0/0_0.png", 400, "bad_link"),
        (f"/tiles/{SLIDE_ID}/0/{'9' * 5000}_0", 400, "bad_link"),
        (f"/tiles/{SLIDE_ID}", 400, "bad_link"),
        ("/tiles/..%2F..%2Fetc/0/0_0", 400, "bad_link"),
        ("/tiles/%2e%2e/0/0_0", 400, "bad_link"),
        (f"/tiles/.{SLIDE_ID}.partial/0/0_0", 400, "bad_link"),
        (f"/tiles/{'a' * 65}/0/0_0", 400, "bad_link"),
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


@pytest.mark.parametrize(("level", "holes"), [(0, [(256, 256, 256, 256)]), (1, [(128, 128, 128, 128)]), (2, [])])
def test_a_damaged_chunk_is_a_hole_and_what_is_around_it_is_shown(
    project: Project, tmp_path: Path, level: int, holes: list[tuple[int, int, int, int]]
) -> None:
    damaged = Project(tmp_path)
    shutil.copytree(project.store_path(SLIDE_ID), damaged.store_path(SLIDE_ID))
    flip_a_bit(damaged, row=1, column=1)

    parts = parts_of(get(SlideCache(damaged), f"/tiles/{SLIDE_ID}/{level}/0_0").content)

    assert [box for box, stream in parts if not stream] == holes
    whole = parts_of(get(SlideCache(project), f"/tiles/{SLIDE_ID}/{level}/0_0").content)
    if level != 1:  # there the rest was encoded around the hole
        assert [part for part in parts if part[1]] == [part for part in whole if part[0] not in holes]


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
    """Browsers do not know JPEG 2000."""
    pixels = sample_image(700, 500)
    source = write_aperio_j2k(tmp_path / "a.svs", pixels, compression=33005)
    ingest(source, tmp_path, slide_id="j2k", smallest_level_px=350)
    cache = SlideCache(Project(tmp_path))
    assert [level.codec for level in cache.slide("j2k").reader.levels] == ["imagecodecs_jpeg2k", "zstd"]

    tiles = [parts_of(get(cache, f"/tiles/j2k/{link}").content) for link in ("0/0_0", "0/1_0", "1/0_0")]
    thumbnail = get(cache, "/thumbnails/j2k.jpg")

    sizes = [(512, 500), (188, 500), (350, 250)]
    assert [[box for box, _ in parts] for parts in tiles] == [[(0, 0, *size)] for size in sizes]
    assert [Image.open(io.BytesIO(parts[0][1])).size for parts in tiles] == sizes
    shown = np.asarray(Image.open(io.BytesIO(tiles[0][0][1]))).astype(int)
    assert np.abs(shown - pixels[:500, :512]).mean() < 8  # noise of ±20 through a JPEG
    assert Image.open(io.BytesIO(thumbnail.content)).size == (320, 229)
    assert get(cache, "/tiles/j2k/0/2_0").status_code == 404


def test_the_mask_of_damage_is_opaque_where_the_file_is_damaged(damaged_project: Project) -> None:
    response = get(SlideCache(damaged_project), f"/damaged/{SLIDE_ID}.png")

    grey_alpha = np.asarray(Image.open(io.BytesIO(response.content)))
    assert response.headers["content-type"] == "image/png"
    assert grey_alpha.shape == (6, 8, 2)
    assert set(zip(*np.nonzero(grey_alpha[..., 1]), strict=True)) == DAMAGED_TILES
