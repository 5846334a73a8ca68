"""Every family of slides through the whole ingest workflow: the store has the pixels written to the slide."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import halved, ingest, sample_image
from tests.pipeline.slides.make_ome_zarr import write_ome_zarr
from tests.pipeline.slides.make_tiff_families import write_ome_tiff, write_philips
from tests.pipeline.slides.make_vendor_slides import Made
from tests.pipeline.slides.test_vendor_slides import bif, mrxs, ndpi, scn

MISSING = ((1, 1), (7, 5), (0, 0))


def philips(folder) -> Made:
    pixels = sample_image(512, 384)
    for column, row in MISSING:  # the scanner leaves out glass only
        pixels[64 * row : 64 * row + 64, 64 * column : 64 * column + 64] = 255
    levels = [np.ascontiguousarray(pixels[:: 2**i, :: 2**i]) for i in range(5)]
    return write_philips(folder / "a.tiff", levels, missing=MISSING)


def ome(folder) -> Made:
    return write_ome_tiff(folder / "a.ome.tiff", halved(sample_image(300, 210), 2))


def ome_zarr(folder) -> Made:
    levels = halved(sample_image(300, 210), 2)
    return Made(write_ome_zarr(folder / "a.zarr", levels, version="0.4"), levels)


@pytest.mark.parametrize(
    ("maker", "route", "files"),
    [
        (mrxs, "decode", 4),
        (ndpi, "pass-through", 1),
        (scn, "decode", 1),
        (bif, "decode", 1),
        (philips, "pass-through", 1),
        (ome, "pass-through", 1),
        (ome_zarr, "decode", None),
    ],
)
def test_the_store_has_every_level_as_it_was_in_the_slide(tmp_path, maker, route, files):
    made = maker(tmp_path)

    reader = StoreReader(ingest(made.path, tmp_path / "project").store)

    for level, pixels in enumerate(made.levels):
        height, width = pixels.shape[:2]
        np.testing.assert_array_equal(reader.read_region(level, Box(0, 0, width, height)), pixels)
    assert {level.route for level in reader.attributes.levels[: len(made.levels)]} == {route}
    source = reader.attributes.source
    assert source.files == (len([p for p in made.path.rglob("*") if p.is_file()]) if files is None else files)
    for file in reader.path.rglob("zarr.json"):
        assert "Jane" not in file.read_text()
        assert made.path.name not in file.read_text()


def test_what_was_scanned_is_in_the_store_and_the_rest_takes_no_chunks(tmp_path):
    reader = StoreReader(ingest(mrxs(tmp_path).path, tmp_path / "project", decode_chunk_px=64).store)

    assert reader.attributes.bounds_px0 == (192, 64, 384, 256)
    assert reader.chunk(0, 0, 0) is None
    assert reader.chunk(0, 1, 3) is not None


def test_a_tile_that_philips_left_out_is_no_chunk(tmp_path):
    reader = StoreReader(ingest(philips(tmp_path).path, tmp_path / "project").store)

    assert all(reader.chunk(0, row, column) is None for column, row in MISSING)
    assert {level.gate.against.split()[0] for level in reader.attributes.levels} == {"openslide"}


def test_a_changed_companion_file_is_another_source(tmp_path):
    path = mrxs(tmp_path).path
    before = StoreReader(ingest(path, tmp_path / "one").store).attributes.source.sha256
    ini = tmp_path / "a" / "Slidedat.ini"
    ini.write_bytes(ini.read_bytes() + b"\r\n")

    assert StoreReader(ingest(path, tmp_path / "two").store).attributes.source.sha256 != before
