"""Tiles show the position in their row, in training and inference, whatever the store's codec and levels."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pipeline.grid import tile_grid
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.table import read_table
from pipeline.tiles.tile import make_tile_table
from tests.pipeline.inference.fed_tiles import fed_tiles
from tests.pipeline.make import MPP0, ingest, write_aperio_j2k, write_pyramid

WIDTH_PX0, HEIGHT_PX0 = 1500, 1100
J2K_MPP0 = 0.499
"""Value in the description of the Aperio slide."""


def slope() -> np.ndarray:
    """Image in which red encodes x and green y: 0 to 250 over the slide."""
    y, x = np.mgrid[:HEIGHT_PX0, :WIDTH_PX0] + 0.5
    return np.stack([250 * x / WIDTH_PX0, 250 * y / HEIGHT_PX0, np.full_like(x, 90)], -1)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    exact = slope()
    pixels = np.rint(exact).astype(np.uint8)
    odd = np.rint(cv2.resize(exact, (496, 363), interpolation=cv2.INTER_AREA)).astype(np.uint8)
    j2k = write_aperio_j2k(folder / "a.svs", pixels, compression=33005)
    stores = [
        ingest(j2k, folder, slide_id="j2k", smallest_level_px=375).store,
        ingest(write_pyramid(folder / "b.tiff", [pixels, odd], compression="lzw"), folder, slide_id="odd").store,
    ]
    readers = [StoreReader(store) for store in stores]
    assert [level.codec for level in readers[0].levels] == ["imagecodecs_jpeg2k", "zstd", "zstd"]
    assert [round(level.downsample, 3) for level in readers[1].levels] == [1.0, 3.027]
    return Project(folder)


@pytest.mark.parametrize("mpp", [0.5, 0.8, 1.0, 1.53, 1.6])
def test_a_tile_shows_the_place_of_its_row(project, mpp):
    name = f"mpp{mpp:g}".replace(".", "-")
    make_tile_table(project, name, TileConfig(tile_px=64, mpp=mpp, min_tissue=0.0, classes=()), cohort=None)
    frame = read_table(project.tile_table_path(name)).frame
    dataset = TileDataset(project.root, name)
    assert set(frame.slide_id) == {"j2k", "odd"}

    for index in range(0, len(frame), max(1, len(frame) // 40)):
        row = frame.iloc[index]
        tile = dataset.read(index).astype(float)
        level = StoreReader(project.store_path(row.slide_id)).levels[row.level]
        centre_xy = np.array([row.x_px0, row.y_px0]) + row.side_px0 / 2
        grey_per_px0 = np.array([250 / WIDTH_PX0, 250 / HEIGHT_PX0])
        shown_xy = tile.mean((0, 1))[:2] / grey_per_px0
        # A tile starts on a whole pixel of its level: half a pixel at either end, and rounding to whole greys.
        assert (np.abs(shown_xy - centre_xy) <= 0.5 * level.downsample + 0.3 / grey_per_px0).all(), row
        spread = np.array([tile[:, -1, 0].mean() - tile[:, 0, 0].mean(), tile[-1, :, 1].mean() - tile[0, :, 1].mean()])
        np.testing.assert_allclose(spread, grey_per_px0 * row.side_px0 * 63 / 64, atol=1 + level.downsample / 6)


@pytest.mark.parametrize("slide_id", ["j2k", "odd"])
def test_inference_sees_the_tiles_that_training_sees(project, slide_id):
    make_tile_table(project, "same", TileConfig(tile_px=48, mpp=1.53, min_tissue=0.0, classes=()), cohort=None)
    frame = read_table(project.tile_table_path("same")).frame
    dataset = TileDataset(project.root, "same")
    reader = StoreReader(project.store_path(slide_id))
    grid = tile_grid(reader.size_wh_px0, reader.mpp0, tile_px=48, mpp=1.53)
    assert reader.mpp0 == (J2K_MPP0 if slide_id == "j2k" else MPP0)
    where = {(x, y): i for i, (x, y) in enumerate(map(tuple, grid.corners_xy0.tolist()))}
    rows = frame[frame.slide_id == slide_id]
    chosen = np.array([where[int(row.x_px0), int(row.y_px0)] for row in rows.itertuples()])

    seen = fed_tiles(reader, grid, chosen)

    np.testing.assert_array_equal(seen, [dataset.read(int(index)) for index in rows.index])
