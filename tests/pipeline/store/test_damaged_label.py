"""The damage label: exact to the pixel when testing whether a square touches it, and never smaller in a grid."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pipeline.store.layers.damaged import damaged_cells, damaged_fraction, read_damaged
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.damage import damage_tiles
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid
from training.foundation.errors import UnreadableError

SIDE = 64


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Store of 10 × 8 tiles of 64 px, of which the one at x 192–256, y 128–192 is damaged."""
    folder = tmp_path_factory.mktemp("damaged")
    path = write_jpeg_pyramid(folder / "a.tiff", halved(sample_image(600, 500), 1), tile_px=SIDE)
    damage_tiles(path, [2 * 10 + 3], "zeros")
    return ingest(path, folder, damaged="mask").store


@pytest.mark.parametrize("side_px0", [1, 10, 33, 64, 100])
def test_a_square_touches_damage_exactly_if_one_of_its_pixels_is_damaged(store, side_px0):
    is_damaged = np.zeros((512, 640), bool)
    is_damaged[128:192, 192:256] = True
    random = np.random.default_rng(side_px0)
    edges = [(192 - side_px0, 130), (193 - side_px0, 130), (256, 130), (255, 191), (255, 192), (200, 128 - side_px0)]
    corners_xy0 = np.clip([*edges, *random.integers(0, 400, (60, 2)).tolist()], 0, None)

    share = damaged_fraction(store, corners_xy0, side_px0)

    expected = [is_damaged[y : y + side_px0, x : x + side_px0].mean() for x, y in corners_xy0]
    assert share.dtype == np.float32
    np.testing.assert_array_equal(share > 0, np.asarray(expected) > 0)
    np.testing.assert_allclose(share, expected, atol=1e-6)


def test_a_store_without_the_label_has_no_damage(small_project):
    path = small_project.project.store_path(small_project.test_slide)

    assert read_damaged(path) is None
    assert (damaged_fraction(path, np.array([[0, 0], [100, 300]]), 64) == 0).all()


@pytest.mark.parametrize("cell_px0", [1.0, 16.0, 16.3, 64.0, 100.7])
def test_in_another_grid_every_cell_is_damaged_that_the_damage_reaches_into(cell_px0):
    mask = np.zeros((5, 7), np.uint8)
    mask[2, 3] = 1
    shape = tuple(int(np.ceil(n * SIDE / cell_px0)) for n in mask.shape)

    cells = damaged_cells(mask, SIDE, shape, cell_px0)

    rows, columns = (np.arange(n) * cell_px0 for n in shape)
    in_rows, in_columns = (
        (start < (at + 1) * SIDE) & (start + cell_px0 > at * SIDE) for start, at in ((rows, 2), (columns, 3))
    )
    np.testing.assert_array_equal(cells, in_rows[:, None] & in_columns[None])


@pytest.mark.parametrize("side", ["64", 0, -3, 2**40, None, 6.4])
def test_a_label_whose_cells_have_no_size_is_refused(store, tmp_path, side):
    copy = tmp_path / store.name
    shutil.copytree(store, copy)
    meta = copy / "0/labels/damaged/zarr.json"
    content = json.loads(meta.read_text())
    content["attributes"]["gemslide"]["cell_px0"] = side
    meta.write_text(json.dumps(content))

    with pytest.raises(UnreadableError, match=r"labels/damaged: cannot be read .* ingest the slide again"):
        read_damaged(copy)


@pytest.mark.parametrize("damaged", ["many", {"tiles": -1, "of": 3}, {"tiles": 1}, {"tiles": 1.5, "of": 3}, None])
def test_counts_that_are_none_are_refused_wherever_the_store_is_opened(store, tmp_path, damaged):
    copy = tmp_path / store.name
    shutil.copytree(store, copy)
    content = json.loads((copy / "zarr.json").read_text())
    content["attributes"]["gemslide"]["ingest"]["damaged"] = damaged
    (copy / "zarr.json").write_text(json.dumps(content))

    with pytest.raises(UnreadableError, match="are not counts of tiles"):
        StoreReader(copy)


def test_the_label_lies_over_the_image_as_ngff_says(store):
    label = json.loads((store / "0/labels/damaged/zarr.json").read_text())["attributes"]["ome"]
    image = json.loads((store / "0/zarr.json").read_text())["attributes"]["ome"]
    names = json.loads((store / "0/labels/zarr.json").read_text())["attributes"]["ome"]["labels"]

    assert names == ["tissue", "damaged"]
    datasets = label["multiscales"][0]["datasets"]
    assert len(datasets) == len(image["multiscales"][0]["datasets"])
    (scale, translation) = datasets[0]["coordinateTransformations"]
    assert scale["scale"] == [SIDE * 0.5, SIDE * 0.5]
    assert translation["translation"] == [(SIDE - 1) * 0.25] * 2  # half of 64 px, from the centre of the first
