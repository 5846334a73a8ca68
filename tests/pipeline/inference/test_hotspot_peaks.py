"""Separate peaks within one connected area, for free-response evaluation."""

import numpy as np
import pytest

from pipeline.inference.results.hotspots import find_hotspots
from pipeline.store.layers.overlays import Predictions


def spots_of(probability_yx, distance_um, *, threshold=0.5, most=1000):
    values = np.stack([1 - probability_yx, probability_yx]).astype(np.float16)
    made = Predictions("m", ("n", "p"), values, 100.0, 100.0, {})
    return find_hotspots(made, ["p"], mpp0=0.5, threshold=threshold, most=most, min_distance_um=distance_um)


def two_hills():
    """One area above 0.5 with peaks at (row 4, column 5) and (row 4, column 15), the second one lower."""
    y, x = np.mgrid[:9, :21]
    hill = lambda row, column, height: height * np.exp(-((y - row) ** 2 + (x - column) ** 2) / 40)  # noqa: E731
    return 0.52 + np.maximum(hill(4, 5, 0.44), hill(4, 15, 0.3))


def test_without_a_distance_a_connected_area_is_one_hotspot():
    (spot,) = spots_of(two_hills(), 0.0)

    assert (spot["x_px0"], spot["y_px0"], spot["area_um2"]) == (550, 450, 9 * 21 * 2500)


def test_hills_further_apart_than_the_distance_are_hotspots_and_share_the_area():
    first, second = spots_of(two_hills(), 300.0)

    assert [(s["x_px0"], s["y_px0"]) for s in (first, second)] == [(550, 450), (1550, 450)]
    assert first["score"] > second["score"]
    assert first["area_um2"] + second["area_um2"] == 9 * 21 * 2500
    assert first["area_um2"] > second["area_um2"]


def test_hills_nearer_than_the_distance_are_one_hotspot():
    assert len(spots_of(two_hills(), 501.0)) == 1
    assert len(spots_of(two_hills(), 500.0)) == 2  # ten cells of 50 µm


@pytest.mark.parametrize("distance_um", [60.0, 120.0, 400.0])
def test_hotspots_of_an_area_keep_their_distance_and_areas_add_up(distance_um):
    probability_yx = np.random.default_rng(3).random((40, 60)) * np.linspace(1, 0.2, 60)
    probability_yx[10:14, 20:30] = 1.0  # a plateau
    probability_yx = probability_yx.astype(np.float16).astype(np.float64)
    whole, spots = spots_of(probability_yx, 0.0), spots_of(probability_yx, distance_um)

    assert len(spots) >= len(whole)
    assert sum(s["area_um2"] for s in spots) == sum(s["area_um2"] for s in whole)
    assert {(s["x_px0"], s["y_px0"]) for s in whole} <= {(s["x_px0"], s["y_px0"]) for s in spots} | plateau_cells()
    assert all(nearest_in_area_um(spots, probability_yx) >= distance_um - 1e-6)


def plateau_cells():
    return {(column * 100 + 50, row * 100 + 50) for row in range(10, 14) for column in range(20, 30)}


def nearest_in_area_um(spots, probability_yx):
    """Distances in µm between pairs of hotspots in one connected area."""
    from scipy import ndimage

    labels, _ = ndimage.label(probability_yx >= 0.5, structure=np.ones((3, 3)))
    places = np.array([(s["y_px0"] // 100, s["x_px0"] // 100) for s in spots])
    areas = labels[places[:, 0], places[:, 1]]
    first, second = np.triu_indices(len(spots), 1)
    same = areas[first] == areas[second]
    return np.hypot(*(places[first] - places[second])[same].T) * 50
