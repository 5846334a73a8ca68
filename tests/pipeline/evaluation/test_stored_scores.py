"""Scores of tiles and slides from stored predictions, against values by hand; and when to report a baseline."""

import numpy as np
import pandas as pd
import pytest

from pipeline.evaluation.baseline_note import baseline_note
from pipeline.evaluation.statistics.bootstrap import Estimate
from pipeline.evaluation.stored import longest_extent_um, slide_scores, tile_probabilities
from pipeline.store.layers.overlays import Predictions
from training.foundation.errors import BadRecipeError, EmptyTableError

WARM = np.array(
    [
        [0.0, 0.2, 0.4, np.nan],
        [0.2, 0.6, 0.8, np.nan],
        [0.0, 0.0, 0.9, np.nan],
    ]
)


def predictions(warm_yx, *, stride_px0=32.0, side_px0=32.0):
    return Predictions(
        "m", ("cold", "warm"), np.stack([1 - warm_yx, warm_yx]).astype(np.float16), stride_px0, side_px0, {}
    )


def tiles(*corners, side_px0=64):
    return pd.DataFrame(corners, columns=["x_px0", "y_px0"]).assign(side_px0=side_px0)


def test_a_tile_has_the_mean_of_the_cells_whose_centre_it_covers():
    # (0, 0): cells 0 and 1 each way: (0 + 0.2 + 0.2 + 0.6) / 4; (32, 0): 0.2, 0.4, 0.6, 0.8; (64, 32): 0.8 and 0.9
    # alone, as the others were not predicted; (20, 20): centres from 20 to 84 are those of cells 1 and 2, so 0.6, 0.8,
    # 0 and 0.9
    probabilities = tile_probabilities("s", "m", tiles((0, 0), (32, 0), (64, 32), (20, 20)), predictions(WARM))

    assert probabilities[:, 1] == pytest.approx([0.25, 0.5, 0.85, 0.575], abs=1e-3)
    assert probabilities.sum(1) == pytest.approx(np.ones(4), abs=1e-3)


def test_a_tile_of_which_nothing_was_predicted_is_no_zero():
    with pytest.raises(EmptyTableError, match="slide s: model m has no prediction for 1 of 2 labelled tiles"):
        tile_probabilities("s", "m", tiles((0, 0), (96, 0), side_px0=64), predictions(np.where(WARM > 2, 0, WARM)))


def test_squares_that_overlap_but_were_not_merged_are_only_taken_where_they_are_the_tiles():
    overlapping = predictions(WARM, stride_px0=32.0, side_px0=64.0)

    assert tile_probabilities("s", "m", tiles((32, 32)), overlapping)[0, 1] == pytest.approx(0.6, abs=1e-3)
    with pytest.raises(BadRecipeError, match="1 of 1 tile of the tile set is not among the squares"):
        tile_probabilities("s", "m", tiles((40, 32)), overlapping)


def test_a_slide_s_score_follows_the_stated_rule():
    values = np.linspace(0, 0.99, 100).reshape(10, 10)

    assert slide_scores(predictions(values), "max")[1] == pytest.approx(0.99, abs=1e-3)
    assert slide_scores(predictions(values), "mean")[1] == pytest.approx(0.495, abs=1e-3)
    assert slide_scores(predictions(values), "top_decile")[1] == pytest.approx(0.945, abs=1e-3)
    with pytest.raises(EmptyTableError, match="no cell of the slide was predicted"):
        slide_scores(predictions(np.full((3, 3), np.nan)), "max")


def test_the_longest_extent_is_that_of_the_largest_connected_area():
    values = np.zeros((20, 30))
    values[2, 3:23] = 0.9  # twenty cells of 32 px at 0.25 µm: 160 µm; its ellipse's axis is 4 · √(20² / 12 …) = 184 µm
    values[10, 10] = 0.9

    assert longest_extent_um(predictions(values), 1, threshold=0.5, mpp0=0.25) == pytest.approx(184.5, abs=1)
    assert longest_extent_um(predictions(values[8:12]), 1, threshold=0.5, mpp0=0.25) == 8.0
    assert longest_extent_um(predictions(values), 1, threshold=0.95, mpp0=0.25) == 0.0


@pytest.mark.parametrize(
    ("model", "baseline", "said"),
    [
        (Estimate(0.99, 0.97, 1.0), 0.95, "is 0.9 or more"),
        (Estimate(0.80, 0.70, 0.9), 0.75, "is not below the model's lower limit"),
        (Estimate(0.80), 0.85, "is not below the model's"),
        (Estimate(0.80, 0.70, 0.9), 0.65, None),
        (Estimate(None), 0.95, None),
        (Estimate(0.99, 0.97, 1.0), None, None),
    ],
)
def test_a_baseline_without_training_is_explained_where_it_is_good(model, baseline, said):
    methods = {"this model": {"AUROC": model}, "untrained": {"AUROC": Estimate(baseline)}}

    note = baseline_note(methods, {"untrained": "It follows colour."}, 30)

    assert (f"untrained, {baseline:.3f}, {said}." in note and "It follows colour." in note) if said else note == ""
    assert "patients, an AUROC near 1" not in note
    assert not said or "With 3 patients, an AUROC near 1" in baseline_note(methods, {"untrained": ""}, 3)
