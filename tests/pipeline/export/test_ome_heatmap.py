"""The OME-TIFF heatmap holds the array, at the size of its cells, for every program that reads OME-TIFF."""

import numpy as np
import pytest
import tifffile

from pipeline.export.tiff.heatmap import read_ome_heatmap, write_ome_heatmap
from pipeline.slides.common.damage import DamagedFileError
from pipeline.store.layers.overlays import nan_pyramid
from tests.pipeline.export.predicted import NAMES, float32, made_predictions


@pytest.fixture(scope="module")
def made():
    return made_predictions(131, 300)


@pytest.fixture(scope="module")
def written(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("heatmap") / "heatmap.ome.tiff"
    write_ome_heatmap(path, "S-1", made, mpp0=0.25)
    return path


def test_tifffile_reads_the_array_back_with_nan_and_its_pyramid(made, written):
    with tifffile.TiffFile(written) as tiff:
        series = tiff.series[0]
        assert (tiff.is_ome, series.axes, series.dtype) == (True, "CYX", np.float32)
        assert series.is_pyramidal
        levels = [level.asarray() for level in series.levels]
        assert tiff.pages[0].is_tiled

    pyramid = nan_pyramid(made.probabilities_cyx)
    assert [level.shape for level in levels] == [values.shape for values in pyramid]
    for level, values in zip(levels, pyramid, strict=True):
        assert np.array_equal(level, values.astype(np.float32), equal_nan=True)


def test_it_says_classes_size_position_and_what_it_is_for(written):
    with tifffile.TiffFile(written) as tiff:
        image = tifffile.xml2dict(tiff.ome_metadata)["OME"]["Image"]
    pixels = image["Pixels"]

    assert [channel["Name"] for channel in pixels["Channel"]] == list(NAMES)
    assert (pixels["PhysicalSizeX"], pixels["PhysicalSizeY"]) == (32.0, 32.0)
    assert {(plane["PositionX"], plane["PositionXUnit"]) for plane in pixels["Plane"]} == {(16.0, "µm")}
    assert "Research use only" in image["Description"]


def test_our_own_reading_gives_the_same(made, written):
    values, cell_um = read_ome_heatmap(written)

    assert cell_um == 32.0
    assert np.array_equal(values, float32(made), equal_nan=True)


def test_the_same_predictions_give_the_same_bytes(made, written, tmp_path):
    write_ome_heatmap(tmp_path / "again.ome.tiff", "S-1", made, mpp0=0.25)

    assert (tmp_path / "again.ome.tiff").read_bytes() == written.read_bytes()


@pytest.mark.parametrize("keep", [0, 8, 200, 5000])
def test_a_file_cut_short_is_said_to_be_damaged(written, tmp_path, keep):
    (tmp_path / "cut.ome.tiff").write_bytes(written.read_bytes()[:keep])

    with pytest.raises(DamagedFileError):
        read_ome_heatmap(tmp_path / "cut.ome.tiff")
