"""A probe's C is chosen on its training tiles alone, and no larger than it must be."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.evaluation.probe import logistic
from pipeline.evaluation.probe.logistic import REGULARISATIONS, choose_c, fit_probe
from training.foundation.errors import EmptyTableError


def tiles(count: int, distance: float, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, `distance` apart in the first of ten columns."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    values = random.normal(size=(count, 10))
    values[:, 0] += distance * labels
    return values.astype(np.float32), labels


def test_a_probe_separates_classes_that_a_column_separates():
    probe = fit_probe(*tiles(100, 6.0), num_classes=3)
    values, labels = tiles(60, 6.0, seed=1)

    probabilities = probe.probabilities(values)

    assert (probabilities.argmax(1) == labels).mean() > 0.95
    assert probe.num_tiles == 100
    assert (probabilities[:, 2] == 0).all()  # a class without training tiles
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


def test_the_smallest_c_within_a_standard_error_of_the_best_is_chosen(monkeypatch):
    means = dict(zip(REGULARISATIONS, (0.5, 0.5, 0.6, 0.78, 0.79, 0.8, 0.8, 0.8), strict=True))
    monkeypatch.setattr(logistic, "_regression", lambda c: c)
    monkeypatch.setattr(
        "sklearn.model_selection.cross_val_score", lambda c, *_, cv: means[c] + np.array([-0.05, 0, 0, 0, 0.05])
    )

    # One standard error: the deviation, 0.0316, over the root of 5.
    assert choose_c(*tiles(20, 1.0)) == REGULARISATIONS[4]


@pytest.mark.parametrize("labels", [[0] * 12, [0] * 8 + [1] * 4, []])
def test_too_few_tiles_or_classes_are_refused_with_their_number(labels):
    values = np.zeros((len(labels), 3), np.float32)

    with pytest.raises(EmptyTableError, match="5 or more of each"):
        fit_probe(values, np.array(labels, np.int64), 2)
