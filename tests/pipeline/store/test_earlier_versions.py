"""Stores that earlier versions of the contract wrote are read as they were."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import zarr

from pipeline.box import Box
from pipeline.store.labels import read_tissue
from pipeline.store.overlays import read_predictions
from pipeline.store.qc_scores import read_quality
from pipeline.store.reader import StoreReader
from tests.pipeline.store.golden import GOLDEN, as_version_1, level_crcs


@pytest.fixture
def version_2(tmp_path):
    """Written by the code of version 2: JPEG levels without checksums in their chunks, a chunk left out."""
    return shutil.copytree(GOLDEN / "golden-2.ome.zarr", tmp_path / "golden-2.ome.zarr")


def test_a_store_of_contract_version_2_has_the_pixels_that_it_had(version_2):
    reader = StoreReader(version_2)

    assert level_crcs(version_2) == json.loads((GOLDEN / "pixels.json").read_text())["crc32_of_levels"]
    assert [level.codec for level in reader.levels] == ["imagecodecs_jpeg", "imagecodecs_jpeg", "zstd"]
    assert not any(level.array.spec.has_checksums for level in reader.levels)
    assert reader.chunk(0, 0, 0).endswith(b"\xff\xd9")
    for level in reader.levels:
        plain = np.moveaxis(zarr.open(version_2, mode="r")[f"0/{level.level}"][...], 0, -1)
        np.testing.assert_array_equal(
            plain, reader.read_region(level.level, Box(0, 0, level.width_px, level.height_px))
        )


def test_tissue_predictions_and_scores_of_version_2_are_read(version_2):
    mask, mpp = read_tissue(version_2)
    plain = zarr.open(version_2, mode="r")

    assert (mask.shape, mpp) == ((12, 19), 8.0)
    np.testing.assert_array_equal(mask, plain["0/labels/tissue/0"][...])
    np.testing.assert_array_equal(read_predictions(version_2, "m-1").probabilities_cyx, plain["predictions/m-1/0"][...])
    np.testing.assert_array_equal(read_quality(version_2).scores_cyx, plain["quality/0"][...])


def test_a_store_of_contract_version_1_is_read(version_2):
    """It has no list of checksums, no checksum in its zstd chunks, and says less of its levels."""
    before = level_crcs(version_2)

    as_version_1(version_2)

    assert level_crcs(version_2) == before
