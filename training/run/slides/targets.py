"""Targets of a slide-level run: what the network gives for each, from the recipe and the training units."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.bag_source import BagSource, with_targets
from training.foundation.errors import EmptyTableError
from training.foundation.words.counts import counted
from training.models.heads.targets import Target, check_values
from training.recipe.slides import SlideRecipe, TargetConfig

LEAST_STD = 1e-12


def targets_of(recipe: SlideRecipe, source: BagSource) -> list[Target]:
    """The targets of a run, in the order of the recipe: the training units alone decide scales, weights and bins.

    Raises:
        EmptyTableError: a target that no training unit has, or that is the same for all.
    """
    train = with_targets(source, "train")
    targets, column = [], 0
    for config in recipe.target:
        width = len(config.columns)
        targets.append(_target(config, source, source.values[train, column : column + width]))
        column += width
    check_values(targets, torch.from_numpy(source.values))
    return targets


def _target(config: TargetConfig, source: BagSource, values_nc: NDArray[np.float64]) -> Target:
    known_nc = values_nc[np.isfinite(values_nc).all(1)]
    if not len(known_nc):
        raise EmptyTableError(
            f"target {config.name!r}: no {source.unit} to train on has a value in {', '.join(config.columns)}. Fill in "
            "the table, or leave the target out."
        )
    if config.kind in ("class", "ordinal"):
        return _classes(config, source.classes[config.name], known_nc[:, 0].astype(np.int64))
    if config.kind == "number":
        return _number(config, known_nc[:, 0])
    if config.loss == "cox":
        return Target(config.name, "cox", num_outputs=1, weight=config.weight)
    return _intervals(config, known_nc)


def _classes(config: TargetConfig, names: tuple[str, ...], labels: NDArray[np.int64]) -> Target:
    counts = np.bincount(labels, minlength=len(names))
    weights = None
    if config.class_weights == "balanced":
        weights = tuple((len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1))).tolist())
    if config.kind == "class":
        return Target(config.name, "class", len(names), config.weight, weights)
    return Target(config.name, "ordinal", len(names) - 1, config.weight, weights)


def _number(config: TargetConfig, numbers: NDArray[np.float64]) -> Target:
    std = float(numbers.std())
    if std < LEAST_STD * max(1.0, float(np.abs(numbers).max())):
        raise EmptyTableError(
            f"target {config.name!r}: all {counted(len(numbers), 'value')} to train on are {numbers[0]:g}, so there is "
            "nothing to learn. Leave the target out."
        )
    return Target(config.name, "number", 1, config.weight, mean=float(numbers.mean()), std=std)


def _intervals(config: TargetConfig, values_nc: NDArray[np.float64]) -> Target:
    """Intervals of time with equally many events each, up to the last event."""
    events = values_nc[values_nc[:, 1] == 1, 0]
    shares = np.arange(1, config.bins + 1) / config.bins
    bounds = np.unique(np.quantile(events, shares)) if len(events) else np.empty(0)
    if len(bounds) < config.bins:
        raise EmptyTableError(
            f"target {config.name!r}: {counted(len(events), 'event')} at {counted(len(np.unique(events)), 'time')} are "
            f"too few for bins = {config.bins}. Use fewer bins."
        )
    return Target(config.name, "discrete", config.bins, config.weight, bounds=tuple(bounds.tolist()))
