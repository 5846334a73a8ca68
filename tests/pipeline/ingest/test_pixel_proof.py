"""The store's pixels are the source's own, bit for bit, for any program with zarr and for our own reader."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.box import Box
from pipeline.ingest.ingest import IngestReport
from pipeline.ingest.shards import halve
from pipeline.ingest.source_comparison import verify_store
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.ingest.plain_zarr import bands
from tests.pipeline.make import halved, ingest, overwrite_tag, sample_image, write_pyramid
from tests.pipeline.make_any import APERIO_JPEG_2000, Pyramid, decoded_by_tifffile, pyramids, write_any

UNDER_A_TILE_LEFT_OUT = Pyramid((30, 241), (2, 2), 240, APERIO_JPEG_2000, "<", bigtiff=False, left_out=0.3, seed=8)
"""Level 1 has an omitted tile, from which OpenSlide draws level 2 although level 2 has its own tile."""
OF_A_FEW_PIXELS = Pyramid((32, 61), (4,), 240, ("jpeg", "rgb", "444"), "<", bigtiff=False, left_out=0.0, seed=0)
"""Level 1 has 8×16 px: taking every fourth pixel shifts it by a twentieth of its width."""


def assert_pixels_are_the_sources(report: IngestReport, source: Path, reader: str, every: int = 1) -> None:
    """Compare every `every`-th band of the levels with the source, using only zarr and the source's decoder."""
    num_levels = sum(level.route != "built" for level in report.levels)
    script = Path(__file__).with_name("plain_zarr.py")
    command = [sys.executable, str(script), str(report.store), str(source), reader, str(num_levels), str(every)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ours"] == []
    assert [level["worst"] for level in result["levels"]] == [0] * num_levels
    assert [crc_of_fast_reader(report.store, level, every) for level in range(num_levels)] == [
        level["crc"] for level in result["levels"]
    ]


def crc_of_fast_reader(store: Path, level: int, every: int) -> int:
    reader = StoreReader(store)
    size, crc = reader.levels[level], 0
    for rows in bands(size.height_px, every):
        pixels = reader.read_region(level, Box(0, rows.start, size.width_px, rows.stop - rows.start))
        crc = zlib.crc32(np.ascontiguousarray(pixels), crc)
    return crc


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "reader", "routes"),
    [
        ("Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs", "openslide", {"pass-through"}),
        ("image-rs+image-tiff/tests/libtiffpic/quad-tile.tif", "tifffile", {"decode"}),
        ("BhavyaKohli+MoNuSAC-Instance-Segmentation/code/sample_original/A9K0_1.svs", "openslide", {"pass-through"}),
    ],
)
def test_a_real_slide_keeps_every_pixel(real_slides, tmp_path, file, reader, routes):
    report = ingest(real_slides / file, tmp_path, mpp=0.5)

    assert {level.route for level in report.levels} - {"built"} == routes
    assert_pixels_are_the_sources(report, real_slides / file, reader)


@pytest.mark.data
@pytest.mark.xdist_group("polyp")
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.prove)])
def test_a_whole_real_slide_of_414_megapixels_keeps_every_pixel(polyp, polyp_store, every):
    """Compare every eighth band, or all of it."""
    assert [level.route for level in polyp_store.levels] == ["pass-through"] * 4
    assert_pixels_are_the_sources(polyp_store, polyp, "openslide", every)


@pytest.mark.parametrize(("photometric", "tile_px"), [("rgb", 240), ("ycbcr", 256), ("rgb", 512), ("ycbcr", 240)])
def test_a_pyramid_with_edge_tiles_and_halved_chroma_passes_through(tmp_path, photometric, tile_px):
    source = write_pyramid(
        tmp_path / "a.tiff", halved(sample_image(1300, 902), 1), tile_px=tile_px, photometric=photometric
    )

    report = ingest(source, tmp_path)

    assert [level.route for level in report.levels] == ["pass-through", "pass-through"]
    assert_pixels_are_the_sources(report, source, "openslide")


def test_levels_that_are_not_a_whole_number_smaller_pass_through_too(tmp_path):
    """OpenSlide reads such levels between pixels; scanners often write them."""
    source = write_pyramid(tmp_path / "a.tiff", halved(sample_image(1001, 701), 1))

    report = ingest(source, tmp_path)

    assert [level.route for level in report.levels] == ["pass-through", "pass-through"]
    assert "openslide" in report.levels[1].gate.against
    assert "tifffile" in report.levels[1].gate.against
    assert_pixels_are_the_sources(report, source, "tifffile")


@pytest.mark.parametrize("compression", ["jpeg", "lzw"])
def test_tiles_the_scanner_left_out_are_white(tmp_path, compression):
    """As the reduced level shows, there is glass."""
    pixels = sample_image(700, 500)
    pixels[0:256, 256:512], pixels[256:, 512:] = 255, 240
    source = write_pyramid(tmp_path / "a.tiff", halved(pixels, 1), compression=compression)
    decoded = tifffile.imread(source)
    for tile in (1, 5):
        overwrite_tag(source, 324, 0, index=tile)
        overwrite_tag(source, 325, 0, index=tile)

    reader = StoreReader(ingest(source, tmp_path).store)

    decoded[0:256, 256:512] = 255
    decoded[256:500, 512:700] = 255
    np.testing.assert_array_equal(reader.read_region(0, Box(0, 0, 700, 500)), decoded)


def test_built_levels_are_the_mean_of_two_by_two_pixels(tmp_path):
    source = write_pyramid(tmp_path / "a.tiff", [sample_image(603, 401)], compression="deflate")

    report = ingest(source, tmp_path, smallest_level_px=320)

    assert [level.route for level in report.levels] == ["decode", "built"]
    reader = StoreReader(report.store)
    finest = np.pad(reader.read_region(0, Box(0, 0, 603, 401)), ((0, 1), (0, 1), (0, 0)), mode="edge").astype(int)
    mean = finest.reshape(201, 2, 302, 2, 3).sum((1, 3)) / 4
    assert np.abs(reader.read_region(1, Box(0, 0, 302, 201)) - mean).max() <= 0.5


@pytest.mark.parametrize("max_examples", [20, pytest.param(300, marks=[pytest.mark.prove, pytest.mark.timeout(1800)])])
def test_any_small_pyramid_keeps_every_pixel(tmp_path, max_examples):
    @settings(max_examples=max_examples)
    @given(pyramid=pyramids(), shard_px=st.sampled_from([256, 512, 4096]))
    @example(pyramid=UNDER_A_TILE_LEFT_OUT, shard_px=256)
    @example(pyramid=OF_A_FEW_PIXELS, shard_px=256)
    def keeps_every_pixel(pyramid, shard_px):
        folder = tmp_path / "any"
        folder.mkdir()
        try:
            assert_any_pyramid_is_kept(pyramid, shard_px, folder)
        finally:
            shutil.rmtree(folder)

    keeps_every_pixel()


def assert_any_pyramid_is_kept(pyramid: Pyramid, shard_px: int, folder: Path) -> None:
    source = write_any(folder / "a.tiff", pyramid)

    report = ingest(source, folder, shard_px=shard_px, smallest_level_px=100)

    levels, reader, plain = decoded_by_tifffile(source), StoreReader(report.store), zarr.open(report.store)
    assert len(levels) == len(pyramid.levels())
    wanted = "pass-through" if pyramid.passes else "decode"
    assert [level.route for level in report.levels[: len(levels)]] == [wanted] * len(levels)
    for level, attributes in enumerate(report.levels):
        if level == len(levels):
            assert attributes.route == "built"
            levels.append(halve(levels[-1]))
        pixels = levels[level]
        height, width = pixels.shape[:2]
        stored = reader.read_region(level, Box(0, 0, width, height))
        for row, column in attributes.rebuilt:  # Aperio's omitted tiles where the parent has pixels
            assert pyramid.coding == APERIO_JPEG_2000
            y, x = row * pyramid.tile_px, column * pyramid.tile_px
            tile = np.s_[y : y + pyramid.tile_px, x : x + pyramid.tile_px]
            pixels[tile] = stored[tile]
        np.testing.assert_array_equal(stored, pixels)
        np.testing.assert_array_equal(np.moveaxis(plain[f"0/{level}"][:], 0, -1), pixels)
    verify_store(report.store, source=source)
