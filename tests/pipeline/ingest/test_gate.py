"""The gate: tiles pass through only if a reference decoder sees the same image; otherwise the level is decoded."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.ingest.gate import sample_tiles
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import (
    halved,
    ingest,
    overwrite_tile,
    sample_image,
    tile_bytes,
    write_jpeg_pyramid,
    write_pyramid,
)


@pytest.mark.parametrize(("tag", "stream"), [("rgb", "ycbcr"), ("ycbcr", "rgb")])
def test_where_tag_and_stream_contradict_each_other_the_stream_is_copied_and_the_reader_believed(tmp_path, tag, stream):
    levels = halved(sample_image(700, 500), 1)
    source = write_jpeg_pyramid(tmp_path / "a.tiff", levels, photometric=tag, stream=stream, subsampling="444")
    honest = write_jpeg_pyramid(tmp_path / "b.tiff", levels, photometric=stream, subsampling="444")

    report = ingest(source, tmp_path)

    assert [(level.route, level.gate.equal) for level in report.levels[:2]] == [("pass-through", True)] * 2
    assert all(level.gate.against.startswith("tifffile") for level in report.levels[:2])
    reader, wanted = StoreReader(report.store), StoreReader(ingest(honest, tmp_path, slide_id="S-2").store)
    for level in (0, 1):
        size = reader.levels[level]
        box = Box(0, 0, size.width_px, size.height_px)
        np.testing.assert_array_equal(reader.read_region(level, box), wanted.read_region(level, box))


def test_an_honest_file_passes_with_the_reference_and_the_number_of_tiles_recorded(tmp_path):
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(700, 500)])

    (level,) = ingest(source, tmp_path).levels

    assert (level.route, level.gate.tiles, level.gate.equal) == ("pass-through", 6, True)
    assert level.gate.against.startswith("openslide 4.")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tile_px": None, "compression": "lzw"}, "stored in strips, not tiles"),
        ({"compression": "lzw"}, "compressed with LZW, not JPEG or JPEG 2000"),
    ],
)
def test_what_cannot_pass_says_why(tmp_path, options, reason):
    (level,) = ingest(write_pyramid(tmp_path / "a.tiff", [sample_image(300, 200)], **options), tmp_path).levels

    assert (level.route, level.gate.tiles, level.gate.reason) == ("decode", 0, reason)


def test_a_sampled_tile_that_nobody_can_decode_stops_the_slide(tmp_path):
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(700, 500)])
    overwrite_tile(source, 0, b"\xff\xc5" * 20, at=tile_bytes(source, 0) // 2)

    with pytest.raises(CorruptTileError, match="row 0, column 0"):
        ingest(source, tmp_path)

    assert list(tmp_path.glob("slides/*")) == []


def test_the_sample_has_corners_edges_and_the_longest_and_shortest_tile(tmp_path):
    pixels = sample_image(10 * 64, 8 * 64)
    pixels[3 * 64 : 4 * 64, 6 * 64 : 7 * 64] = 200
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [pixels], tile_px=64)

    with open_slide(source) as slide:
        encoded = slide.encoded_level(0)
        sample = list(sample_tiles(encoded, 16))
        longest = divmod(int(encoded.byte_counts().argmax()), 10)

    assert len(set(sample)) == len(sample) == 16
    assert {(0, 0), (0, 9), (7, 0), (7, 9), (7, 5), (4, 9), (3, 6), longest} <= set(sample)
