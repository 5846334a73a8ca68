"""Predictions for QuPath are placed where QuPath will show them."""

import json

import numpy as np
import pytest

from pipeline.annotations.files import read_annotations
from pipeline.annotations.formats.geojson import qupath_origin_xy0
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.box import Box
from pipeline.export.qupath.predictions import write_geojson
from pipeline.store.layers.overlays import Predictions


def predictions():
    cells = np.full((2, 2, 3), np.nan, np.float16)
    cells[:, 1, 2] = (0.25, 0.75)
    cells[:, 0, 1] = (0.9, 0.1)
    return Predictions("m", ("cold", "warm"), cells, 100.0, 100.0, {})


@pytest.mark.parametrize(
    ("bounds_px0", "corners"),
    [(None, [(100, 0), (200, 100)]), (Box(40, 60, 500, 300), [(60, -60), (160, 40)])],
)
def test_tiles_begin_where_qupath_begins_to_count(tmp_path, bounds_px0, corners):
    path = tmp_path / "p.geojson"

    write_geojson(path, predictions(), "00", origin_xy0=qupath_origin_xy0(bounds_px0))

    features = json.loads(path.read_text())["features"]
    assert [tuple(feature["geometry"]["coordinates"][0][0]) for feature in features] == corners
    assert [feature["properties"]["classification"]["name"] for feature in features] == ["cold", "warm"]
    assert features[1]["properties"]["measurements"] == {"prob_cold": 0.25, "prob_warm": 0.75}


def test_our_own_predictions_read_as_annotations_label_nothing(tmp_path):
    write_geojson(tmp_path / "p.geojson", predictions(), "00")

    file = read_annotations(tmp_path / "p.geojson")
    regions, report = labelled_regions(file)

    assert (len(file.objects), regions, report.num_unused) == (2, [], 2)
    assert {drawn.object_type for drawn in file.objects} == {"tile"}
