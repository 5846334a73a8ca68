"""The HTTP routes, requested in process."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pathology_app.slides.cache import SlideCache
from pathology_app.tiles.colour_body import COLOUR_MEDIA_TYPE
from pathology_app.tiles.routes import CACHE_CONTROL
from pathology_app.tiles.tile_body import MEDIA_TYPE
from pathology_app.viewer.bundle import bundle_path
from pipeline.project import Project
from pipeline.store.view.colour import ToSrgb
from tests.pathology_app.profiles import give_profile, matrix_profile
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


@pytest.fixture(scope="module")
def profiled(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same slide, with a scanner's colour profile."""
    with_profile = Project(tmp_path_factory.mktemp("profiled"))
    store = shutil.copytree(project.store_path(SLIDE_ID), with_profile.store_path(SLIDE_ID))
    give_profile(store, matrix_profile(1.8))
    return with_profile


@pytest.mark.parametrize("level", [0, 1, 2])
def test_tiles_of_a_slide_with_a_colour_profile_are_those_without(
    cache: SlideCache, profiled: Project, level: int
) -> None:
    link = f"/tiles/{SLIDE_ID}/{level}/0_0"
    assert get(SlideCache(profiled), link).content == get(cache, link).content


def test_a_colour_table_is_sent_with_every_node_s_colour(profiled: Project) -> None:
    cache = SlideCache(profiled)
    response = get(cache, f"/colour/{SLIDE_ID}")

    assert (response.status_code, response.headers["content-type"]) == (200, COLOUR_MEDIA_TYPE)
    assert response.headers["cache-control"] == CACHE_CONTROL
    count = int.from_bytes(response.content[:4], "little")
    assert count <= 33
    nodes, colours = response.content[4 : 4 + count], response.content[4 + count :]
    assert (nodes[0], nodes[-1], len(colours)) == (0, 255, 3 * count**3)
    at = 3 * ((5 * count + 7) * count + 2)
    node = np.array([[[nodes[5], nodes[7], nodes[2]]]], np.uint8)
    assert colours[at : at + 3] == ToSrgb(matrix_profile(1.8))(node).tobytes()
    again = get(cache, f"/colour/{SLIDE_ID}", **{"If-None-Match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_profile_of_no_use_leaves_the_slide_to_be_seen_as_scanned(
    cache: SlideCache, profiled: Project, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    give_profile(shutil.copytree(profiled.store_path(SLIDE_ID), project.store_path(SLIDE_ID)), b"no profile")

    refused, tile = (get(SlideCache(project), link) for link in (f"/colour/{SLIDE_ID}", f"/tiles/{SLIDE_ID}/0/0_0"))

    assert (refused.status_code, refused.json()["code"]) == (500, "unreadable")
    assert "cannot be used" in refused.json()["message"]
    assert tile.content == get(cache, f"/tiles/{SLIDE_ID}/0/0_0").content


def test_a_tile_at_half_of_a_level_is_made_of_the_streams_stored(cache: SlideCache) -> None:
    [first, between, last] = cache.slide(SLIDE_ID).screen_levels
    assert (first.downsample, between.downsample, last.downsample) == (1, 2, 4)

    half = parts_of(get(cache, f"/tiles/{SLIDE_ID}/1/0_0").content)
    finer = {}
    for row, column in np.ndindex(2, 2):
        for (x, y, width, height), stream in parts_of(get(cache, f"/tiles/{SLIDE_ID}/0/{column}_{row}").content):
            finer[x + 512 * column, y + 512 * row] = (width, height, stream)

    assert {(2 * x, 2 * y): (2 * width, 2 * height, stream) for (x, y, width, height), stream in half} == finer


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
        (f"/colour/{SLIDE_ID}", 404, "unknown_name"),
        ("/colour/nobody", 404, "unknown_name"),
        ("/colour/..%2F..%2Fetc", 400, "bad_link"),
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
    if level != 1:  # the rest there was encoded around the hole
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
    """Browsers do not support JPEG 2000."""
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
    assert np.abs(shown - pixels[:500, :512]).mean() < 8  # noise of ±20 after JPEG compression
    assert Image.open(io.BytesIO(thumbnail.content)).size == (320, 229)
    assert get(cache, "/tiles/j2k/0/2_0").status_code == 404


def test_the_mask_of_damage_is_opaque_where_the_file_is_damaged(damaged_project: Project) -> None:
    response = get(SlideCache(damaged_project), f"/damaged/{SLIDE_ID}.png")

    grey_alpha = np.asarray(Image.open(io.BytesIO(response.content)))
    assert response.headers["content-type"] == "image/png"
    assert grey_alpha.shape == (6, 8, 2)
    assert set(zip(*np.nonzero(grey_alpha[..., 1]), strict=True)) == DAMAGED_TILES
