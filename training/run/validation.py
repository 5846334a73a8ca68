"""Validation by the engine that trains: the same ranks and micro-batches, without keeping activations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.tile_batch import TileBatch
from training.data.tile_dataset import TileSource, labelled, read_tiles
from training.engine.engine import Engine
from training.foundation.words.counts import counted, first_of
from training.models.build import outputs_of, probabilities
from training.recipe.config import Recipe

SHOWN_TILES = 8
AT_ONCE = 64
"""Micro-batches of a replica that are evaluated at once; outputs are small."""


class Validation:
    """The validation tiles of a run, and its network's predictions for them."""

    def __init__(self, recipe: Recipe, source: TileSource, engine: Engine, pool: ThreadPoolExecutor) -> None:
        self.tiles = labelled(source, "val")
        """Their indices in the dataset."""
        self._recipe, self._source, self._engine, self._pool = recipe, source, engine, pool

    @property
    def _slides(self) -> NDArray[np.str_]:
        """Slide of each tile; one slide for all if the dataset does not say."""
        slides: NDArray[np.str_] | None = getattr(self._source, "slides", None)
        return np.zeros(len(self.tiles), "U1") if slides is None else slides[self.tiles]

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.asarray(self._source.labels[self.tiles])

    def metrics(self, probabilities_nk: NDArray[np.float32]) -> dict[str, float]:
        """Metrics of tiles, and of slides if the dataset knows the slides of its tiles."""
        from training.run.metrics import (  # takes a second, which should not delay the first step
            classification_metrics,
            slide_metrics,
        )

        by_tile = classification_metrics(self.labels, probabilities_nk)
        return by_tile | slide_metrics(self.labels, probabilities_nk, self._slides)

    def images(self, probabilities_nk: NDArray[np.float32]) -> dict[str, NDArray[np.uint8]]:
        """Images for the log: confusion matrices of tiles and of slides, and some tiles with their predictions."""
        from training.run.metrics import confusion_image, slide_means, tile_image

        shown = np.linspace(0, len(self.tiles) - 1, min(SHOWN_TILES, len(self.tiles))).astype(int)
        pixels = read_tiles(self._source, self.tiles[shown], self._pool)
        by_tile, by_slide = (self.labels, probabilities_nk), slide_means(self.labels, probabilities_nk, self._slides)
        at_levels = {"confusion": by_tile} | ({"slide_confusion": by_slide} if len(by_slide[0]) > 1 else {})
        return {
            **{name: confusion_image(*pair, self._source.classes) for name, pair in at_levels.items()},
            "tiles": tile_image(pixels, self.labels[shown], probabilities_nk[shown], self._source.classes),
        }

    def not_finite(self, probabilities_nk: NDArray[np.float32]) -> str:
        """Name the tiles whose probabilities are not finite, for people."""
        rows = self.tiles[~np.isfinite(probabilities_nk).all(1)]
        shown = first_of(rows.tolist(), SHOWN_TILES)
        return f"{len(rows)} of {counted(len(self.tiles), 'validation tile')} (rows {shown} of the tile table)"

    def probabilities(self) -> NDArray[np.float32]:
        """Probabilities of all validation tiles, float32 (tiles, classes), on every rank; every rank calls it."""
        parallel = self._recipe.parallel
        at_once = AT_ONCE * parallel.data_parallel * parallel.microbatch_size
        outputs = outputs_of(self._recipe.model.variant)
        parts = []
        for start in range(0, len(self.tiles), at_once):
            tiles = self.tiles[start : start + at_once]
            batch = TileBatch(self._source, tiles, parallel.microbatch_size, self._pool)
            parts += [probabilities(output_nk, outputs) for output_nk in self._engine.forward_only(batch)]
        return np.asarray(torch.cat(parts).numpy())
