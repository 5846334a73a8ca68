"""Intervals by patient, and the weighted measures behind them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torchmetrics.functional.classification import binary_sensitivity_at_specificity

from pipeline.evaluation.statistics.bootstrap import (
    FEWEST_PATIENTS,
    Draws,
    Estimate,
    Resamples,
    estimate,
    percentile_interval,
)
from pipeline.evaluation.statistics.one_class import AUROC, Cutoffs, auroc_resampled, class_result
from pipeline.evaluation.statistics.ranking import Ranking
from pipeline.evaluation.statistics.resampled_roc import ResampledRoc

CUTOFFS = Cutoffs(threshold=0.5, specificities=(0.9,), bins=5)


def cohort(seed, *, patients=12, tiles=20, between=0.0):
    """Truth, scores (with ties) and patients of tiles; `between` is the spread between patients."""
    random = np.random.default_rng(seed)
    patient = np.repeat(np.arange(patients), tiles)
    share = np.full(patients, 0.4) if not between else random.uniform(size=patients)
    truth = random.uniform(size=len(patient)) < share[patient]
    shift = random.normal(0, between, patients)[patient]
    scores = 1 / (1 + np.exp(-(random.normal(size=len(patient)) + 1.2 * truth + shift)))
    return truth, np.round(scores, 2), np.array([f"p{p}" for p in patient])


@given(st.integers(0, 2**32 - 1))
def test_every_resample_s_measures_are_those_of_its_drawn_tiles(seed):
    truth, scores, patients = cohort(seed, patients=6, tiles=8)
    resamples = Resamples.draw(patients, resamples=3, seed=seed % 1000)
    counts = Ranking(truth, scores, resamples).counts(resamples.counts_rp)
    rocs = ResampledRoc(truth, scores, resamples)
    measured = np.stack([rocs.aucs(), counts.average_precision(), counts.sensitivity_at(0.8)], axis=1)
    grid = np.linspace(0, 1, 31)

    for row, values, tprs in zip(resamples.counts_rp, measured, rocs.tprs(grid), strict=True):
        drawn = np.repeat(np.arange(len(truth)), row[resamples.patient_of].astype(int))
        if truth[drawn].all() or not truth[drawn].any():
            assert np.isnan(values).all()
            assert np.isnan(tprs).all()
            continue
        fpr, tpr, _ = roc_curve(truth[drawn], scores[drawn], drop_intermediate=False)
        expected = (
            roc_auc_score(truth[drawn], scores[drawn]),
            average_precision_score(truth[drawn], scores[drawn]),
            tpr[fpr <= 0.2 + 1e-12].max(),
        )
        assert tuple(values) == pytest.approx(expected, abs=1e-12)
        # Where the curve is vertical, its upper end. Rates are compared by their integer numerators.
        negatives = (~truth[drawn]).sum()
        assert tprs == pytest.approx(np.interp(grid * negatives + 1e-9, fpr * negatives, tpr), abs=1e-6)


def test_items_of_several_sets_are_drawn_as_each_alone_would_be():
    sets = [np.array(["a", "b", "c", "d", "e"] * n) for n in (1, 3)] + [np.array(["a", "b"]), np.array(list("vwxyz"))]
    draws = Draws(50, seed=4)
    for patients in sets:
        drawn, alone = draws.of(patients), Resamples.draw(patients, resamples=50, seed=4)
        assert (drawn.counts_rp == alone.counts_rp).all()
        assert (drawn.patient_of == alone.patient_of).all()
        assert (drawn.counts_rp.sum(1) == 5).all()


def test_sensitivity_at_a_specificity_is_torchmetrics_s():
    truth, scores, patients = cohort(3)
    sensitivity = Ranking(truth, scores, Resamples.draw(patients, resamples=1, seed=0)).counts().sensitivity_at(0.9)
    expected, _ = binary_sensitivity_at_specificity(
        torch.tensor(scores), torch.tensor(truth, dtype=torch.long), min_specificity=0.9
    )

    assert sensitivity[0] == pytest.approx(float(expected), abs=1e-6)


def test_the_same_seed_gives_the_same_interval_and_another_gives_another():
    truth, scores, patients = cohort(0)
    one, same, other = (
        class_result("x", truth, scores, Resamples.draw(patients, resamples=200, seed=seed), CUTOFFS).measures[AUROC]
        for seed in (0, 0, 1)
    )

    assert one == same != other
    assert one.low < one.value < one.high
    assert one.value == pytest.approx(roc_auc_score(truth, scores))


def test_patients_that_differ_make_the_interval_wider_than_tiles_would():
    truth, scores, patients = cohort(1, patients=15, tiles=40, between=1.5)
    tiles = np.array([str(n) for n in range(len(truth))])

    low, high, _ = percentile_interval(auroc_resampled(truth, scores, Resamples.draw(patients, resamples=400, seed=0)))
    of_tiles = percentile_interval(auroc_resampled(truth, scores, Resamples.draw(tiles, resamples=400, seed=0)))

    assert high - low > 1.5 * (of_tiles[1] - of_tiles[0])


def test_an_interval_by_patient_covers_the_truth_about_as_often_as_it_says():
    """Sensitivity of 0.7 over 40 different patients: 95 % intervals of 200 studies; by tile they would cover less."""
    random = np.random.default_rng(0)
    by_patient, by_tile = 0, 0
    for study in range(200):
        rates = random.beta(7, 3, size=40)  # mean 0.7
        called = (random.uniform(size=(40, 25)) < rates[:, None]).ravel()
        for is_patient in (True, False):
            names = np.repeat(np.arange(40), 25) if is_patient else np.arange(1000)
            resamples = Resamples.draw(names.astype(str), resamples=200, seed=study)
            totals = resamples.totals(resamples.sum_by_patient(np.stack([called, np.ones(1000)], axis=1)))
            low, high, _ = percentile_interval(totals[:, 0] / totals[:, 1])
            by_patient += is_patient and low <= 0.7 <= high
            by_tile += not is_patient and low <= 0.7 <= high

    assert 0.89 <= by_patient / 200 <= 0.99
    assert by_tile / 200 < 0.8


def test_too_few_patients_or_resamples_that_lack_the_measure_give_no_interval():
    truth, scores, patients = cohort(0, patients=FEWEST_PATIENTS - 1)
    few = class_result("x", truth, scores, Resamples.draw(patients, resamples=100, seed=0), CUTOFFS)

    assert few.measures[AUROC] == Estimate(pytest.approx(roc_auc_score(truth, scores)), None, None, 0)
    assert few.patients == FEWEST_PATIENTS - 1
    mostly_missing = np.where(np.arange(100) < 30, np.nan, 0.5)
    assert estimate(0.5, mostly_missing) == Estimate(0.5, None, None, 70)
    assert estimate(None, np.ones(100)) == Estimate(None)


def test_a_measure_that_is_the_same_in_all_resamples_has_no_interval_of_them():
    """An AUROC of 1.000 (1.000 to 1.000) would claim certainty, which six pairs of patients do not give."""
    truth, _, patients = cohort(0)
    result = class_result("x", truth, truth * 0.8 + 0.1, Resamples.draw(patients, resamples=100, seed=0), CUTOFFS)

    assert result.measures[AUROC] == Estimate(1.0, pytest.approx(0.025 ** (1 / 6)), 1.0, 100, is_exact=True)
    assert result.measures["prevalence"].low is not None
    assert not result.measures["prevalence"].is_exact
    assert percentile_interval(np.ones(100)) == (None, None, 100)


def test_a_class_that_does_not_occur_has_no_curves_but_its_calibration():
    _, scores, patients = cohort(0)
    nothing = np.zeros(len(scores), bool)

    result = class_result("x", nothing, scores, Resamples.draw(patients, resamples=50, seed=0), CUTOFFS)

    assert result.roc is None
    assert result.decision is None
    assert result.measures[AUROC].value is None
    assert result.measures["specificity"].value is not None
    assert result.calibration.bins[0].observed.value == 0.0


def test_bands_hold_the_curve():
    truth, scores, patients = cohort(2, patients=25)
    result = class_result("x", truth, scores, Resamples.draw(patients, resamples=300, seed=0), CUTOFFS)

    on_grid = np.interp(result.roc.grid, result.roc.x, result.roc.y)
    inside = (np.array(result.roc.low) <= on_grid + 1e-9) & (on_grid <= np.array(result.roc.high) + 1e-9)
    assert inside.mean() > 0.95
    assert np.array(result.decision.low)[20] < result.decision.model[20] < np.array(result.decision.high)[20]
