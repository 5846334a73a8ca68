"""Field cases of colour, planes, edge tiles and scale, against the shared data's INDEX.md."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import ingest

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def cases(real_slides):
    return real_slides / "field_cases"


def stored(path, folder, **options):
    report = ingest(path, folder, slide_id=f"S-{path.stem.split('.')[0]}", **options)
    reader = StoreReader(report.store)
    width_px, height_px = reader.size_wh_px0
    return report, reader.read_region(0, Box(0, 0, width_px, height_px))


def the_picture(cases):
    """Image of the synthetic cases, lossless in the correct file."""
    return tifffile.imread(cases / "F6_rgb_planarconfig2.ome.tif").transpose(1, 2, 0)


@pytest.mark.parametrize("name", ["photometric2_jfif", "photometric6_adobe0"])
def test_the_same_picture_twice_and_a_warning(cases, tmp_path, name):
    stored_twice = [stored(cases / f"F1_{name}_{sub}.tif", tmp_path) for sub in ("sub0", "sub1")]

    digests = {hashlib.sha256(pixels.tobytes()).hexdigest() for _, pixels in stored_twice}
    assert len(digests) == 1
    for report, pixels in stored_twice:
        assert np.abs(pixels.astype(int) - the_picture(cases)).mean() < 3
        assert any("the tiles were trusted" in warning for warning in report.warnings)


def test_three_stains_are_refused(cases):
    with pytest.raises(NotBrightfieldRgbError, match="not red, green and blue of a brightfield slide"):
        open_slide(cases / "F5_fluorescence_in_rgb_order.zarr")


def test_colours_with_a_hash_are_read(cases, tmp_path):
    _, pixels = stored(cases / "F5_omero_hash.zarr", tmp_path)

    np.testing.assert_array_equal(pixels, the_picture(cases))


@pytest.mark.parametrize("damaged", ["refuse", "mask"])
def test_cut_edge_tiles_are_read_as_tifffile_reads_them(cases, tmp_path, damaged):
    report, pixels = stored(cases / "F6_edge_tiles_cropped.tif", tmp_path, damaged=damaged)

    np.testing.assert_array_equal(pixels, tifffile.imread(cases / "F6_edge_tiles_cropped.tif"))
    assert not report.damaged or report.damaged[0] == 0


def test_motic_s_scale_is_read(cases):
    with open_slide(cases / "F6_motic.svs") as slide:
        assert (slide.info.mpp_xy, slide.info.objective_power) == ((0.25729, 0.25729), 40)


@pytest.mark.parametrize("name", ["F6_rgb_as_3_planes.ome.tif", "F6_rgb_planarconfig2.ome.tif"])
def test_planes_are_the_picture(cases, tmp_path, name):
    _, pixels = stored(cases / name, tmp_path)

    np.testing.assert_array_equal(pixels, the_picture(cases))


@pytest.mark.parametrize(("coding", "most"), [("lzw", 0.0), ("jpeg", 4.0)])
def test_what_bfconvert_writes_is_its_source(cases, tmp_path, coding, most):
    _, pixels = stored(cases / f"F6_real_bfconvert_{coding}_planar.ome.tiff", tmp_path)

    source = tifffile.imread(cases / "bfconvert_source.tif").astype(int)
    assert np.abs(pixels - source).mean() <= most
