"""Interface of a network that turns tiles into rows of numbers: what batches, devices and journals need of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.where import RunOn, Seconds

CPU_BATCH_PX, GPU_BATCH_PX = 32 * 224**2, 512 * 224**2
"""Area of the tiles in a batch: less leaves cores idle, more takes memory and is no faster."""


class TileNetwork(Protocol):
    """A network on its device."""

    run_on: RunOn
    devices: tuple[str, ...]
    """Devices that its tiles are computed on: its own, unless other processes do that for it."""

    @property
    def seconds(self) -> Seconds:
        """Time breakdown of all results so far: transfer, compute."""

    def start(self, tiles_nhwc: NDArray[np.uint8]) -> Callable[[], NDArray[np.float32]]:
        """Start a batch and return at once; on a GPU it runs meanwhile. The tiles must not change.

        Returns:
            a function that waits for the values, float32 (tiles, columns), and returns them.

        Raises:
            ImplausibleOutputError: values that the network cannot mean.
        """

    def looks(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Hue (two numbers) and focus of tiles, float64 (tiles, 3); (0, 3) where they do not matter."""


Load = Callable[[RunOn], TileNetwork]
"""Opens a network on a device, in this or another process: it must be picklable.

Raises UnreadableError: damaged. BadRecipeError: devices that it cannot run on."""


def usual_batch_size(devices: tuple[str, ...], tile_px: int) -> int:
    """Default number of tiles that go through a network together."""
    area = GPU_BATCH_PX if all(device.startswith("cuda") for device in devices) else CPU_BATCH_PX
    return max(1, area // tile_px**2)
