"""The pyramid for viewers."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from pipeline.box import Box
from pipeline.store.format.layout import ArraySpec
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import LevelArray, StoreReader
from pipeline.store.view.screen import screen_levels, tile_parts
from tests.pipeline.make import ingest, write_pyramid


@pytest.mark.parametrize(
    ("chunk_px", "downsamples", "expected"),
    [
        (256, (1.0, 4.0, 16.0), [(1, 512), (2, 512), (4, 512), (8, 512), (16, 512)]),
        (240, (1.0, 2.0, 4.0), [(1, 480), (2, 480), (4, 480)]),
        (512, (1.0, 1.999, 15.9), [(1, 512), (1.999, 512), (3.998, 512), (7.996, 512), (15.9, 512)]),
        (1024, (1.0, 3.0), [(1, 1024), (3, 1024)]),
        (333, (1.0, 4.0), [(1, 666), (2, 666), (4, 666)]),
        (4096, (1.0, 4.0), [(1, 4096), (2, 2048), (4, 4096)]),
    ],
)
def test_a_viewer_sees_a_level_at_every_halving_in_tiles_of_whole_chunks(tmp_path, chunk_px, downsamples, expected):
    arrays = [
        ArrayReader(tmp_path / "0" / str(i), ArraySpec(10_000, 7_000, chunk_px, 1, "zstd"))
        for i in range(len(downsamples))
    ]
    levels = [LevelArray(i, array, d) for i, (array, d) in enumerate(zip(arrays, downsamples, strict=True))]

    screens = screen_levels(SimpleNamespace(levels=levels))

    assert [(level.downsample, level.tile_px) for level in screens] == expected
    assert all(level.chunks * chunk_px == level.tile_px * level.shrink for level in screens)


@pytest.mark.parametrize("compression", ["lzw", "jpeg"])
def test_the_tiles_of_every_level_together_are_the_slide(tmp_path, compression):
    y, x = np.mgrid[:1187, :1731]
    pixels = np.stack([x * 255 // 1730, y * 255 // 1186, (x // 40 + y // 30) % 7 * 36], -1).astype(np.uint8)
    pyramid = [pixels, np.ascontiguousarray(pixels[4::8, 4::8])]
    store = ingest(write_pyramid(tmp_path / "a.tiff", pyramid, compression=compression), tmp_path, slide_id="a").store
    levels = screen_levels(StoreReader(store))
    assert [level.shrink for level in levels[:3]] == [1, 2, 4]

    for level in levels:
        array, n = level.source.array, level.shrink
        own = array.read_region(Box(0, 0, array.spec.width_px, array.spec.height_px)).astype(float)
        mean = means(own, n)
        shown = drawn(StoreReader(store), level)
        away = np.abs(shown - mean).mean()  # one JPEG compression and less than a pixel apart
        assert away < 4, level.downsample
        assert all(away < np.abs(shown - np.roll(mean, 1, axis)).mean() / 1.5 for axis in (0, 1)), level.downsample
        with pytest.raises(IndexError, match="the level has"):
            tile_parts(StoreReader(store), level, 0, -(-level.width_px // level.tile_px))


def means(pixels, n):
    """Means of n × n squares, cut off at the edges."""
    padded = np.pad(pixels, ((0, -len(pixels) % n), (0, -pixels.shape[1] % n), (0, 0)), mode="edge")
    return padded.reshape(len(padded) // n, n, padded.shape[1] // n, n, 3).mean((1, 3))


def drawn(reader, level):
    """Image joined from all tiles."""
    shown = np.full((level.height_px, level.width_px, 3), np.nan)
    for row in range(-(-level.height_px // level.tile_px)):
        for column in range(-(-level.width_px // level.tile_px)):
            for part in tile_parts(reader, level, row, column):
                pixels = means(np.asarray(Image.open(io.BytesIO(part.jpeg)).convert("RGB")), part.shrink)
                top, left = row * level.tile_px + part.box.y_px, column * level.tile_px + part.box.x_px
                height, width = part.box.height_px, part.box.width_px
                shown[top : top + height, left : left + width] = pixels[:height, :width]
    return shown
