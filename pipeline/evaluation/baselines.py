"""Baselines that a model must beat: the same network untrained, and the mean colour of a tile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pipeline.evaluation.statistics.metrics import Probabilities
from pipeline.inference.predictor import Predictor
from pipeline.tiles.dataset import TileDataset
from training.foundation.errors import EmptyTableError
from training.foundation.progress import Advance, no_bar

BATCH = 32


def untrained_network(
    package: Path, dataset: TileDataset, tiles: NDArray[np.int64], advance: Advance = no_bar
) -> Probabilities:
    """Probabilities from the package's network with random weights."""
    predictor = Predictor.untrained(package)
    parts = []
    advance.expect(len(tiles))
    for batch in np.array_split(tiles, range(BATCH, len(tiles), BATCH)):
        parts.append(predictor.predict(np.stack([dataset.read(int(i)) for i in batch])))
        advance(len(batch))
    return np.concatenate(parts)


def mean_colour(dataset: TileDataset, tiles: NDArray[np.int64]) -> Probabilities:
    """Probabilities from logistic regression on the mean red, green and blue of each tile, fitted on the train split.

    Raises:
        EmptyTableError: fewer than two classes among the train tiles.
    """
    train = np.flatnonzero((dataset.splits == "train") & (dataset.labels >= 0))
    if len(np.unique(dataset.labels[train])) < 2:
        raise EmptyTableError("the mean-colour baseline needs train tiles of at least two classes.")
    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    regression.fit(_mean_colours(dataset, train), dataset.labels[train])
    known = regression.predict_proba(_mean_colours(dataset, tiles))
    probabilities_nk = np.zeros((len(tiles), len(dataset.classes)), np.float32)
    probabilities_nk[:, regression.classes_] = known
    return probabilities_nk


def _mean_colours(dataset: TileDataset, tiles: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.stack([dataset.read(int(i)).reshape(-1, 3).mean(0) for i in tiles])
