"""Tile datasets for training: a protocol, and batches drawn from it the same way on every rank.

Datasets are found through the entry-point group `gemslide.datasets`, so this package imports no other of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from training.data.colour_statistics import Hues, HueStatistics, hue_statistics, tile_hues
from training.data.focus_statistics import Focus, FocusStatistics, focus_statistics, tile_focus
from training.foundation.errors import BadRecipeError, EmptyTableError
from training.foundation.tile_read import TileRead
from training.foundation.words.counts import counted
from training.recipe.config import DataConfig

Indices = NDArray[np.int64]
Tiles = NDArray[np.uint8]
"""uint8 of shape (tiles, tile_px, tile_px, 3), RGB."""

GROUP = "gemslide.datasets"


class TileSource(Protocol):
    """Interface of a dataset. `Error` is the base of its user-facing errors, each with a `code`.

    A dataset that can normalise stains takes the keyword `stain` and has an attribute `stain`: the JSON that a model
    package must record so that others can do the same.

    A dataset that reads slides has an attribute `tile_read` (`training.foundation.tile_read.TileRead`), which a
    package records as well.

    A dataset that may be unfit for training as it is has a method `warnings`, which returns clauses for people.

    A dataset that knows the origin of its tiles has further attributes (`training.data.facts` uses those present):
    `groups`, str of shape (tiles,): the patient of each tile, or its slide where that has no patient; `grouped_by`:
    "patient" or "slide", for people; `slides`, str of shape (tiles,): the slide of each tile; `scanners`: {slide:
    scanner, or None}.
    """

    Error: type[Exception]
    classes: tuple[str, ...]
    tile_px: int
    mpp: float
    labels: NDArray[np.int64]
    splits: NDArray[np.str_]
    fingerprint: str

    def __len__(self) -> int: ...

    def read(self, index: int) -> Tiles: ...


class SourceFactory(Protocol):
    """A dataset class."""

    Error: type[Exception]

    def __call__(self, project_dir: Path, tile_set: str, classes: Sequence[str], **options: str) -> TileSource: ...


def find_source(name: str) -> SourceFactory:
    """The dataset class registered under `name`.

    Raises:
        BadRecipeError: no dataset has this name.
    """
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in entries:
        raise BadRecipeError(
            f"[data] source = {name!r}: registered datasets are {', '.join(sorted(entries)) or 'none'}."
        )
    factory: SourceFactory = entries[name].load()
    return factory


def open_source(config: DataConfig, project_dir: Path) -> TileSource:
    """The dataset that a recipe's `[data]` describes.

    Raises:
        BadRecipeError: the dataset is not registered, or it cannot normalise stains and the recipe requires it.
    """
    factory = find_source(config.source)
    if config.stain == "none":
        return factory(project_dir, config.tile_set, config.classes)
    if "stain" not in signature(factory).parameters:
        raise BadRecipeError(
            f"[data] stain = {config.stain!r}: dataset {config.source!r} does not normalise stains. "
            'Use stain = "none", or a dataset that does (tiles).'
        )
    return factory(project_dir, config.tile_set, config.classes, stain=config.stain)


def side_in_tile_set(config: DataConfig, project_dir: Path) -> int:
    """Side of the tiles that a recipe's `[data]` describes, to plan for them.

    Raises:
        GemslideError: as `open_source`, or the dataset's own error, with the option that replaces the tiles.
    """
    factory = find_source(config.source)
    try:
        return open_source(config, project_dir).tile_px
    except factory.Error as error:
        raise type(error)(f"{error} To plan without tiles, give their side: `--tile-px 1024`.") from error


def stain_of(source: TileSource) -> dict[str, Any] | None:
    """Stain normalisation of the tiles, as a package records it; None if not normalised."""
    stain: dict[str, Any] | None = getattr(source, "stain", None)
    return stain


def tile_read_of(source: TileSource) -> TileRead | None:
    """Slide level that the tiles are read from; None: the dataset does not say."""
    read: TileRead | None = getattr(source, "tile_read", None)
    return read


def labelled(source: TileSource, split: str) -> Indices:
    """Labelled tiles of a split."""
    return np.flatnonzero((source.splits == split) & (source.labels >= 0))


def check_enough(source: TileSource, batch_size: int, num_classes: int, tile_set: str) -> None:
    """Refuse a tile set that cannot be trained on.

    Raises:
        EmptyTableError: no labelled tiles in train or val, or fewer than one batch.
        BadRecipeError: the number of classes differs.
    """
    if len(source.classes) != num_classes:
        raise BadRecipeError(
            f"[model] num_classes = {num_classes}, but tile set {tile_set!r} has "
            f"{counted(len(source.classes), 'class', 'classes')}: "
            f"{', '.join(source.classes)}."
        )
    counts = {split: len(labelled(source, split)) for split in ("train", "val")}
    if counts["train"] < batch_size or not counts["val"]:
        raise EmptyTableError(
            f"tile set {tile_set!r}: {counted(counts['train'], 'labelled train tile')} and "
            f"{counted(counts['val'], 'labelled val tile')}; at least one batch of {batch_size} and one val tile are "
            "needed. Annotate more slides, assign them to splits, or make the batch smaller ([parallel] "
            "num_microbatches, microbatch_size)."
        )


class BatchPlan:
    """Tiles of each batch, decided by the seed alone, so that ranks agree without communicating.

    The last batch of an epoch holds the remainder: every tile is seen once in each epoch.
    """

    def __init__(self, source: TileSource, *, batch_size: int, seed: int, balance: bool):
        self._train = labelled(source, "train")
        self._labels = source.labels[self._train]
        self._batch_size, self._seed, self._balance = batch_size, seed, balance
        self._epoch, self._tiles = -1, self._train
        self.steps_per_epoch = -(-len(self._train) // batch_size)

    def batch(self, step: int) -> Indices:
        """Tile indices of an optimizer step, counted from 0 over the whole run; int64, batch_size of them or fewer."""
        epoch, first = self.place(step)
        if epoch != self._epoch:  # ordering a million tiles takes as long as a step
            self._epoch, self._tiles = epoch, self._order(epoch)
        return self._tiles[first : first + self._batch_size]

    def place(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and the position of its first tile in that epoch's order; both from 0."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch, within * self._batch_size

    def _order(self, epoch: int) -> Indices:
        random = np.random.default_rng((self._seed, epoch))
        if not self._balance:
            return self._train[random.permutation(len(self._train))]
        per_class = 1.0 / np.bincount(self._labels)[self._labels]
        drawn = random.choice(len(self._train), len(self._train), p=per_class / per_class.sum())
        return self._train[drawn]


def read_tiles(source: TileSource, indices: Indices, pool: ThreadPoolExecutor) -> Tiles:
    """Read tiles in threads; decoders release the interpreter lock."""
    return np.stack(list(pool.map(source.read, (int(i) for i in indices))))


def channel_statistics(source: TileSource, indices: Indices, *, sample: int = 256) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel in 0–1, over an even sample of the tiles."""
    sums, squares, count = np.zeros(3), np.zeros(3), 0
    for index in _even_sample(indices, sample):
        pixels = source.read(int(index)).reshape(-1, 3) / 255.0
        sums += pixels.sum(0)
        squares += (pixels**2).sum(0)
        count += len(pixels)
    mean = sums / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 1e-6))
    return [round(float(v), 6) for v in mean], [round(float(v), 6) for v in std]


def sample_looks(
    source: TileSource, indices: Indices, pool: ThreadPoolExecutor, *, sample: int = 256
) -> tuple[HueStatistics | None, FocusStatistics | None]:
    """Hues and sharpness over an even sample of the tiles, as the dataset gives them; None where none has tissue."""

    def look(index: np.int64) -> tuple[Hues, Focus]:
        tile_nhwc = source.read(int(index))[None]
        return tile_hues(tile_nhwc), tile_focus(tile_nhwc)

    hues, focus = zip(*pool.map(look, _even_sample(indices, sample)), strict=True)
    return hue_statistics(np.concatenate(hues)), focus_statistics(np.concatenate(focus))


def _even_sample(indices: Indices, count: int) -> Indices:
    chosen: Indices = indices[np.linspace(0, len(indices) - 1, min(count, len(indices))).astype(int)]
    return chosen
