"""Intervals come from draws of whole patients, and the figures in the draws are the reported ones."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from training.packages.intervals import DRAWS, Intervals, _Figures, bootstrap_intervals
from training.run.metrics import classification_metrics


def made(num_tiles=300, num_classes=3, seed=0):
    """Labels and probabilities with ties, mostly right."""
    random = np.random.default_rng(seed)
    labels = random.integers(num_classes, size=num_tiles)
    scores = random.random((num_tiles, num_classes)) + 0.5 * np.eye(num_classes)[labels]
    return labels, (np.round(scores, 1) / np.round(scores, 1).sum(1, keepdims=True)).astype(np.float32)


def test_with_every_patient_drawn_once_the_figures_are_the_reported_ones():
    labels, probabilities = made()

    reported = classification_metrics(labels, probabilities)

    for name, value in _Figures(labels, probabilities).weighted(np.ones(len(labels))).items():
        assert value == pytest.approx(reported[name], abs=1e-12), name
    areas = [roc_auc_score(labels == k, probabilities[:, k]) for k in range(probabilities.shape[1])]
    assert reported["auc"] == pytest.approx(np.mean(areas), abs=1e-12)
    exact = probabilities.astype(float) / probabilities.astype(float).sum(1, keepdims=True)
    assert reported["loss"] == pytest.approx(log_loss(labels, exact), abs=1e-12)


def test_a_patient_drawn_twice_counts_twice_as_in_scikit_learn():
    labels, probabilities = made(num_classes=2)
    times = np.random.default_rng(1).integers(3, size=len(labels)).astype(float)

    drawn = _Figures(labels, probabilities).weighted(times)

    areas = [roc_auc_score(labels == k, probabilities[:, k], sample_weight=times) for k in (0, 1)]
    assert drawn["auc"] == pytest.approx(np.mean(areas), abs=1e-9)
    right = probabilities.argmax(1) == labels
    assert drawn["accuracy"] == pytest.approx(np.average(right, weights=times))


def test_two_patients_one_right_one_wrong_give_the_interval_that_can_be_counted():
    """Of two patients drawn with replacement, one in four draws is all right, one in four all wrong."""
    labels = np.repeat([0, 1, 0, 1], 10)
    predicted = np.where(np.arange(40) < 20, labels, 1 - labels)
    probabilities = (np.eye(2)[predicted] * 0.8 + 0.1).astype(np.float32)
    groups = np.repeat(["a", "b"], 20)

    drawn = bootstrap_intervals(labels, probabilities, groups, by="patient")

    assert drawn.groups == 2
    assert drawn.bounds["accuracy"] == drawn.bounds["auc"] == (0.0, 1.0)


def test_tiles_of_few_patients_say_less_than_as_many_independent_ones():
    """A patient's tiles are all right or all wrong: twenty observations, not two thousand."""
    random = np.random.default_rng(2)
    right = np.repeat(random.random(20) < 0.7, 100)
    labels = np.tile([0, 1], 1000)
    probabilities = (np.eye(2)[np.where(right, labels, 1 - labels)] * 0.8 + 0.1).astype(np.float32)

    by_patient = bootstrap_intervals(labels, probabilities, np.repeat(np.arange(20).astype(str), 100), by="patient")
    by_tile = bootstrap_intervals(labels, probabilities, np.arange(2000).astype(str), by="slide")

    widths = [high - low for low, high in (by_patient.bounds["accuracy"], by_tile.bounds["accuracy"])]
    # For a binomial with p = 0.7 the 95 % interval is about 2 · 1.96 · sqrt(p q / n) wide.
    spread = 2 * 1.96 * np.sqrt(right.mean() * (1 - right.mean()))
    assert widths == pytest.approx([spread / np.sqrt(20), spread / np.sqrt(2000)], rel=0.2)


def test_the_same_seed_draws_the_same_and_one_patient_draws_nothing():
    labels, probabilities = made()
    groups = (np.arange(len(labels)) % 7).astype(str)

    assert bootstrap_intervals(labels, probabilities, groups, by="patient") == bootstrap_intervals(
        labels, probabilities, groups, by="patient"
    )
    alone = bootstrap_intervals(labels, probabilities, np.full(len(labels), "p"), by="patient")
    assert alone == Intervals("patient", 1, {})


def test_a_figure_that_most_draws_leave_undefined_has_no_interval():
    """The second class has one patient of five: a third of the draws leave it out."""
    labels = np.repeat([0, 0, 0, 0, 1], 10)
    _, probabilities = made(50, 2)

    drawn = bootstrap_intervals(labels, probabilities, np.repeat(list("abcde"), 10), by="patient")

    assert DRAWS == 1000
    assert drawn.bounds.keys() == {"accuracy"}
