"""Bags for training: all tiles of a patient or slide as features, drawn the same way on every rank.

Sources of bags are found through the entry-point group `gemslide.bags`, so this package imports no other of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from training.data.tile_dataset import Indices
from training.foundation.errors import BadRecipeError, EmptyTableError
from training.foundation.words.counts import counted
from training.recipe.slides import FEATURES, SlideRecipe

GROUP = "gemslide.bags"
POSITION_COLUMNS = 2
"""Last columns of a bag: the centre of each tile on its slide, x and y, in µm."""


class BagSource(Protocol):
    """Interface of a source of bags. `Error` is the base of its user-facing errors, each with a `code`."""

    Error: type[Exception]
    unit: str
    """"patient" or "slide"."""
    units: NDArray[np.str_]
    """Ids of the patients or slides, (units,)."""
    patients: NDArray[np.str_]
    """The patient of each, (units,); the unit itself where that is a patient."""
    splits: NDArray[np.str_]
    """"train", "val", "test" or "" of each, (units,)."""
    num_tiles: NDArray[np.int64]
    """Tiles of each, (units,)."""
    dims: int
    """Features of a tile."""
    values: NDArray[np.float64]
    """Targets, (units, columns), NaN where missing: a column for each target in order, two for survival."""
    classes: Mapping[str, tuple[str, ...]]
    """Classes of each target that has some, by the target's name, in order."""
    encoder: Mapping[str, Any]
    """The encoder, for the package: `encoder_id`, `weights_sha256`, `row`, `side_um`, `min_tissue`, `overlap`."""
    fingerprint: str
    """SHA-256 over units, splits, targets and features."""

    def read(self, unit: int, rows: Indices | None) -> NDArray[np.float32]:
        """Features and positions of a unit's tiles, float32 (tiles, dims + 2).

        Args:
            rows: tiles to read, in rising order; None for all.
        """

    def warnings(self) -> list[str]:
        """Clauses for people about data that is usable but odd."""


class BagSourceFactory(Protocol):
    """A class of bags."""

    Error: type[Exception]

    def __call__(
        self, project_dir: Path, data: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]
    ) -> BagSource: ...


def find_bags() -> BagSourceFactory:
    """The class of bags registered under "features".

    Raises:
        BadRecipeError: none is.
    """
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if FEATURES not in entries:
        raise BadRecipeError(
            f'[data] source = "features": no installed package registers it in the group {GROUP}. Reinstall gemslide.'
        )
    factory: BagSourceFactory = entries[FEATURES].load()
    return factory


def open_bags(recipe: SlideRecipe, project_dir: Path) -> BagSource:
    """The bags that a recipe describes.

    Raises:
        BadRecipeError: none are registered; or what the source raises.
    """
    data = recipe.data.model_dump(mode="json")
    return find_bags()(project_dir, data, [target.model_dump(mode="json") for target in recipe.target])


def with_targets(source: BagSource, split: str) -> Indices:
    """Units of a split that have at least one target."""
    return np.flatnonzero((source.splits == split) & np.isfinite(source.values).any(1))


def units_by_split(source: BagSource) -> dict[str, int]:
    """Number of units with a target in each split."""
    return {split: len(with_targets(source, split)) for split in ("train", "val", "test")}


def check_enough_bags(source: BagSource, batch_size: int) -> None:
    """Refuse bags that cannot be trained on.

    Raises:
        EmptyTableError: too few for one step, or none for validation.
    """
    counts = {split: len(with_targets(source, split)) for split in ("train", "val")}
    if counts["train"] < batch_size or not counts["val"]:
        raise EmptyTableError(
            f"{counted(counts['train'], source.unit)} to train on and {counts['val']} to validate have features and a "
            f"target; a step of {batch_size} and one for validation are needed. Embed more slides, fill in the table, "
            "assign them to splits, or lower [parallel] num_microbatches."
        )
