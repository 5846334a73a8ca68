"""Calibration and net benefit, against values by hand."""

import numpy as np
import pytest

from pipeline.evaluation.statistics.bootstrap import Resamples
from pipeline.evaluation.statistics.calibration import calibration_of, equal_mass_bins
from pipeline.evaluation.statistics.decision_curve import decision_curve
from pipeline.evaluation.statistics.ranking import Ranking

P = np.array([0.1, 0.1, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9])
TRUTH = np.array([0, 0, 0, 1, 0, 1, 1, 1], bool)
RESAMPLES = Resamples.draw([f"p{n}" for n in range(8)], resamples=100, seed=0)


def test_ece_and_brier_score_are_those_worked_out_by_hand():
    # Two bins of four: mean probability 0.2, observed 1/4; mean 0.75, observed 3/4. ECE = (4·0.05 + 4·0) / 8 = 0.025
    # Brier: (0.01 + 0.01 + 0.04 + 0.36 + 0.36 + 0.09 + 0.04 + 0.01) / 8 = 0.92 / 8
    calibration = calibration_of(TRUTH, P, RESAMPLES, bins=2)

    assert [(b.count, b.lowest, b.highest) for b in calibration.bins] == [(4, 0.1, 0.4), (4, 0.6, 0.9)]
    assert [b.observed.value for b in calibration.bins] == [0.25, 0.75]
    assert calibration.ece.value == pytest.approx(0.025)
    assert calibration.brier.value == pytest.approx(0.115)
    assert calibration.brier.low < 0.115 < calibration.brier.high
    assert sum(calibration.histogram) == 8


def test_bins_hold_equally_many_and_never_part_equal_scores():
    assert np.bincount(equal_mass_bins(np.linspace(0, 1, 100), 10)).tolist() == [10] * 10
    tied = np.r_[np.zeros(90), np.linspace(0.1, 1, 10)]
    number = equal_mass_bins(tied, 10)
    assert len(set(number[:90])) == 1
    assert sorted(set(number)) == list(range(number.max() + 1))
    assert set(equal_mass_bins(np.full(5, 0.3), 10)) == {0}


def test_net_benefit_is_that_worked_out_by_hand():
    # At 0.5: four positives called (0.6 is false): TP 3, FP 1 of 8, odds 1: 3/8 − 1/8 = 0.25
    # At 0.2, an item at the threshold counts as positive: TP 4, FP 2 (0.2 and 0.6), odds 1/4: 4/8 − 2/8 · 1/4
    curve = decision_curve(Ranking(TRUTH, P, RESAMPLES))
    by_threshold = dict(zip(curve.thresholds, curve.model, strict=True))

    assert by_threshold[0.5] == pytest.approx(0.25)
    assert by_threshold[0.2] == pytest.approx(0.5 - 0.25 / 4)
    assert by_threshold[0.95] == 0.0
    assert curve.act_on_all[49] == pytest.approx(0.5 - 0.5)
    assert curve.act_on_all[19] == pytest.approx(0.5 - 0.5 / 4)
