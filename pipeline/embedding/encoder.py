"""The pipeline's adapter to tile encoders: the only file that imports `training.encoding`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.where import RunOn, Seconds, default_device
from training import encoding
from training.encoding import ROWS_DIR as ROWS_DIR
from training.encoding import SUFFIX as SUFFIX
from training.encoding import check_encoder as check_encoder
from training.encoding import describe_encoder as describe_encoder
from training.foundation.errors import ImplausibleOutputError


class TileEncoder:
    """A tile encoder that turns tiles into features, and rejects those that are not numbers."""

    def __init__(self, encoder: encoding.Encoder) -> None:
        self._encoder = encoder
        self.run_on = encoder.run_on
        """Device and numerics; the number format is the row's."""
        self.devices: tuple[str, ...] = (encoder.run_on.device,)
        """Devices that compute its features: this one, unless other processes do that for it."""
        self.encoder_id = encoder.encoder_id
        self.name = encoder.name
        self.row = encoder.row
        """The whole row, as JSON."""
        self.weights_sha256 = encoder.weights_sha256
        self.dims = encoder.dims
        self.tile_px = encoder.tile_px
        self.mpp = encoder.mpp
        self.read = encoder.read
        """Rule for the level that its tiles are read from."""

    @classmethod
    def load(cls, row_path: Path, run_on: RunOn | None = None) -> TileEncoder:
        """Open the encoder that a row describes.

        Args:
            run_on: where and how it runs; None: on a GPU if there is one.

        Raises:
            UnreadableError: weights or code are missing, damaged, or others than the row says; or a file runs code.
            DecompressionBombError: weights that are declared larger than their file.
            BadRecipeError: the row does not fit, a package is not installed, or it cannot run on these devices.
        """
        return cls(encoding.Encoder.load(row_path, run_on or RunOn(default_device())))

    @property
    def seconds(self) -> Seconds:
        """Time breakdown of all results so far: transfer, compute."""
        return self._encoder.seconds

    def start(self, tiles_nhwc: NDArray[np.uint8]) -> Callable[[], NDArray[np.float32]]:
        """Start a batch of tiles (tiles, tile_px, tile_px, 3) and return at once; on a GPU it runs meanwhile.

        The tiles must not change.

        Returns:
            a function that waits for the features, float32 (tiles, dims), and returns them.

        Raises:
            ImplausibleOutputError: features that are not finite numbers.
            UnreadableError: other dims than the row says. BadRecipeError: a tile does not fit into memory.
        """
        running = self._encoder.start(tiles_nhwc)
        return lambda: self._finite(running.result())

    def encode(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """`start`, and wait for the features."""
        return self.start(tiles_nhwc)()

    def looks(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Hue and focus of tiles, float64 (0, 3): they do not matter, since no row says which it was trained on."""
        return np.empty((0, 3))

    def _finite(self, features_nd: NDArray[np.float32]) -> NDArray[np.float32]:
        if not np.isfinite(features_nd).all():
            raise ImplausibleOutputError(
                f"encoder {self.encoder_id} returns features that are not finite numbers. Its weights are damaged, or "
                'it needs another number format: set `precision = "fp32"` in its row.'
            )
        return features_nd
