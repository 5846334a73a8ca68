"""Interface of training for the pipeline: a model package as a classifier of tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.colour_statistics import Hues, HueStatistics, hue_distance, tile_hues
from training.data.focus_statistics import Focus, FocusStatistics, focus_distance, tile_focus
from training.foundation.errors import BadRecipeError
from training.foundation.model_files import Runtime
from training.foundation.tile_read import TileRead
from training.machine.allocator import keep_for_prediction
from training.machine.rank_pipes import OTHER_RANK, connection_to
from training.models.build import Outputs, probabilities
from training.packages.config import GemslidePart, PackageConfig, read_package_config
from training.packages.network import fresh_network, trained_network
from training.predict.forward_only import ForwardOnly, Running, Seconds
from training.predict.numerics import Numerics, RunOn, ready_to_predict

__all__ = ["OTHER_RANK", "Classifier", "Numerics", "RunOn", "Running", "Seconds", "connection_to"]

VIEWS = {
    "none": ((0, False),),
    "flips": tuple((turns, mirrored) for mirrored in (False, True) for turns in (0, 2)),
    "all": tuple((turns, mirrored) for mirrored in (False, True) for turns in range(4)),
}
"""Views of each tile, as (quarter turns, mirrored): unchanged; its four flips; its eight turns and flips."""


@dataclass(frozen=True)
class Classifier:
    """A trained network with what it needs to know about its input."""

    model_id: str
    weights_sha256: str | None
    """None: fresh random weights."""
    class_names: tuple[str, ...]
    tile_px: int
    mpp: float
    mean: list[float]
    std: list[float]
    split_sha256: str
    outputs: Outputs
    """Kind of output of the network."""
    runtime: Runtime
    """Runtime of the network: only those of "torch" and "entry-point" can be cast, folded or compiled."""
    stain: dict[str, Any] | None
    """Stain normalisation that tiles need before `predict`; None if none."""
    read: TileRead | None
    """Slide level that its training tiles were read from; None if unknown."""
    hues: HueStatistics | None
    """Hues of its training tiles; None if its package does not say."""
    focus: FocusStatistics | None
    """Sharpness of its training tiles; None if its package does not say."""
    run_on: RunOn
    forward_only: ForwardOnly
    runs_as: dict[str, Any] = field(default_factory=dict)
    """Entries of its package besides the weights that decide its probabilities, as JSON; empty for our own networks."""

    def predict(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Class probabilities.

        Args:
            tiles_nhwc: uint8 (tiles, tile_px, tile_px, 3), RGB at `mpp`.

        Returns:
            float32 (tiles, classes), rows summing to 1.
        """
        return self.start(tiles_nhwc).result()

    def start(self, tiles_nhwc: NDArray[np.uint8]) -> Running:
        """Start `predict`; on a GPU it runs while the caller continues.

        Raises:
            BadRecipeError: not even one tile fits into the device's memory.
        """
        return self.forward_only.start(tiles_nhwc)

    @property
    def seconds(self) -> Seconds:
        """Time spent on all results so far, by kind of work."""
        return self.forward_only.seconds

    @staticmethod
    def tile_hues(tiles_nhwc: NDArray[np.uint8]) -> Hues:
        """Hues of tiles as `predict` takes them, float64 (tiles, 2)."""
        return tile_hues(tiles_nhwc)

    def hue_distance(self, hues_n2: Hues) -> float | None:
        """Distance of tiles from the hues that this was trained on (`colour_statistics`); None if unknown."""
        return hue_distance(hues_n2, self.hues) if self.hues else None

    @staticmethod
    def tile_focus(tiles_nhwc: NDArray[np.uint8]) -> Focus:
        """Sharpness of tiles as `predict` takes them, float64 (tiles,)."""
        return tile_focus(tiles_nhwc)

    def focus_distance(self, focus_n: Focus) -> float | None:
        """Distance of tiles from the sharpness that this was trained on (`focus_statistics`); None if unknown."""
        return focus_distance(focus_n, self.focus) if self.focus else None

    @classmethod
    def load(cls, package: Path, run_on: RunOn = RunOn()) -> Self:
        """Open a model package.

        Raises:
            UnreadableError: files are missing, damaged, of another layout, or not the weights that the id names.
            BadRecipeError: the network cannot be spread over these devices, or they do not exist.
        """
        keep_for_prediction()
        package = package.resolve()
        config = read_package_config(package)
        network, weights_sha256 = trained_network(package, config)
        return cls._from_network(package, config, network, run_on, weights_sha256)

    @classmethod
    def untrained(cls, package: Path, run_on: RunOn = RunOn(), *, seed: int = 0) -> Self:
        """The same network with fresh random weights: an untrained baseline."""
        keep_for_prediction()
        package = package.resolve()
        config = read_package_config(package)
        torch.manual_seed(seed)
        return cls._from_network(package, config, fresh_network(package, config), run_on, None)

    @classmethod
    def _from_network(
        cls, package: Path, config: PackageConfig, network: torch.nn.Module, run_on: RunOn, weights_sha256: str | None
    ) -> Self:
        ours = config.gemslide
        return cls(
            model_id=package.name,
            weights_sha256=weights_sha256,
            class_names=tuple(config.class_names),
            tile_px=config.patch_size_pixels,
            mpp=config.spacing_um_px,
            mean=ours.statistics.mean,
            std=ours.statistics.std,
            split_sha256=ours.split_sha256,
            outputs=ours.gives,
            runtime=ours.runtime,
            runs_as=_runs_as(ours),
            stain=ours.stain.model_dump() if ours.stain else None,
            read=ours.read,
            hues=HueStatistics(**ours.hues.model_dump()) if ours.hues else None,
            focus=FocusStatistics(**ours.focus.model_dump()) if ours.focus else None,
            run_on=run_on,
            forward_only=_forward_only(config, network, run_on),
        )


def _runs_as(ours: GemslidePart) -> dict[str, Any]:
    """Entries that decide how the bytes of another program's model become probabilities."""
    if ours.runtime == "torch":
        return {}
    code = ours.entry_point.model_dump() if ours.entry_point else None
    return {"runtime": ours.runtime, "outputs": ours.gives, **({"entry_point": code} if code else {})}


def _forward_only(config: PackageConfig, network: torch.nn.Module, run_on: RunOn) -> ForwardOnly:
    ours, side_px = config.gemslide, config.patch_size_pixels
    devices = [torch.device(name) for name in run_on.device.split("+")]
    try:
        ready = ready_to_predict(
            network,
            devices,
            run_on.numerics,
            input_shape=(1, 3, side_px, side_px),
            is_ours=ours.runtime in ("torch", "entry-point"),
        )
    except (ValueError, torch.AcceleratorError, AssertionError, torch.OutOfMemoryError) as error:
        raise BadRecipeError(
            f"the model cannot run on {run_on.device} as configured: {error!s:.300}. Choose other --devices, or check "
            "precision and compile in the [infer] section."
        ) from error
    return ForwardOnly(
        network=ready,
        finish=partial(probabilities, outputs=ours.gives),
        mean=ours.statistics.mean,
        std=ours.statistics.std,
        device=devices[0],
        numerics=run_on.numerics,
        views=VIEWS[run_on.views],
    )
