"""Levels that are decoded, on request or because they must be: lossless, or JPEG of a stated quality."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.ingest.shards import halve
from pipeline.ingest.source_comparison import verify_store
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid, write_pyramid


def smooth(width_px, height_px):
    """Colours that change slowly: JPEG keeps them within a few grey values."""
    y, x = np.mgrid[:height_px, :width_px]
    return np.stack(
        [60 + x * 120 / width_px, 60 + y * 120 / height_px, 90 + (x + y) * 60 / (width_px + height_px)], -1
    ).astype(np.uint8)


def whole(reader, level):
    size = reader.levels[level]
    return reader.read_region(level, Box(0, 0, size.width_px, size.height_px))


def test_on_request_tiles_that_could_be_copied_are_decoded_and_every_pixel_is_kept(tmp_path):
    source = write_jpeg_pyramid(tmp_path / "a.tiff", halved(sample_image(1300, 900), 1))
    copied = StoreReader(ingest(source, tmp_path / "copied").store)

    report = ingest(source, tmp_path / "decoded", pass_through=False)

    decoded = StoreReader(report.store)
    assert [(level.route, level.codec) for level in report.levels[:2]] == [("decode", "zstd")] * 2
    assert report.levels[0].gate.reason == "`pass_through = false` in the settings"
    for level in (0, 1):
        np.testing.assert_array_equal(whole(decoded, level), whole(copied, level))


def test_jpeg_on_request_is_small_near_the_pixels_and_says_its_quality(tmp_path):
    pixels = smooth(1300, 900)
    source = write_pyramid(tmp_path / "a.tiff", [pixels], compression="lzw")

    report = ingest(source, tmp_path / "p", decode_to="jpeg", jpeg_quality=85)

    reader = StoreReader(report.store)
    assert [(level.route, level.codec, level.quality) for level in report.levels] == [
        ("decode", "imagecodecs_jpeg", 85), ("built", "imagecodecs_jpeg", 85),
    ]  # fmt: skip
    assert np.abs(whole(reader, 0).astype(int) - pixels).max() <= 12
    assert np.abs(whole(reader, 1).astype(int) - halve(pixels)).max() <= 12
    assert verify_store(report.store, source=source, every_chunk=True).startswith("all files as written")


def test_edges_of_a_slide_in_jpeg_are_not_smeared_with_the_white_beyond(tmp_path):
    dark = np.full((300, 700, 3), 30, np.uint8)
    source = write_pyramid(tmp_path / "a.tiff", [dark], compression="lzw")

    reader = StoreReader(ingest(source, tmp_path / "p", decode_to="jpeg", jpeg_quality=50).store)

    assert whole(reader, 0).max() <= 33


@pytest.mark.parametrize("compression", ["jpeg", "lzw"])
def test_a_slide_of_one_level_gets_the_others_from_shards_in_memory_whatever_its_size(tmp_path, compression):
    """Odd sizes, several shards on every level but the last two, omitted white areas."""
    pixels = sample_image(2311, 1499)
    pixels[400:1300, 600:1900] = 255
    source = write_pyramid(tmp_path / "a.tiff", [pixels], compression=compression)

    report = ingest(
        source, tmp_path / "p", decode_shard_px=256, shard_px=512, decode_chunk_px=128, smallest_level_px=100
    )

    reader = StoreReader(report.store)
    assert [level.route for level in report.levels[1:]] == ["built"] * 5
    assert {array.array.spec.shard_chunks * array.chunk_px for array in reader.levels} == {256}
    for level in range(1, 6):
        np.testing.assert_array_equal(whole(reader, level), halve(whole(reader, level - 1)))
