"""What the pipeline may use: a model package as a classifier of tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from training.allocator import keep_freed_memory
from training.colour_statistics import Hues, HueStatistics, hue_distance, tile_hues
from training.errors import BadRecipeError
from training.focus_statistics import Focus, FocusStatistics, focus_distance, tile_focus
from training.forward_only import ForwardOnly, Running, Seconds
from training.foundation.model_files import Runtime
from training.models.build import Outputs, probabilities
from training.numerics import Numerics, ready_to_predict
from training.package_config import GemslidePart, PackageConfig, read_package_config
from training.package_network import fresh_network, trained_network
from training.rank_pipes import OTHER_RANK, connection_to

__all__ = ["OTHER_RANK", "Classifier", "Numerics", "RunOn", "Running", "Seconds", "connection_to"]

VIEWS = {
    "none": ((0, False),),
    "flips": tuple((turns, mirrored) for mirrored in (False, True) for turns in (0, 2)),
    "all": tuple((turns, mirrored) for mirrored in (False, True) for turns in range(4)),
}
"""How each tile is looked at, as (quarter turns, mirrored): as it is; its four flips; its eight turns and flips."""


@dataclass(frozen=True)
class RunOn:
    """Where and how a network runs."""

    device: str = "cpu"
    """As torch names it; several joined by "+" hold one part of the network each."""
    numerics: Numerics = field(default_factory=Numerics)
    views: str = "none"
    """Key of `VIEWS`: the mean over several views of a tile is its probability."""


@dataclass(frozen=True)
class Classifier:
    """A trained network with what it expects."""

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
    """What the network gives."""
    runtime: Runtime
    """What runs it: only "torch" and "entry-point" are modules whose weights can be cast, folded or compiled."""
    stain: dict[str, Any] | None
    """How tiles must be normalised before `predict` sees them; None: not at all."""
    hues: HueStatistics | None
    """Of the tiles it was trained on; None: its package does not say."""
    focus: FocusStatistics | None
    """Of the tiles it was trained on; None: its package does not say."""
    run_on: RunOn
    forward_only: ForwardOnly
    runs_as: dict[str, Any] = field(default_factory=dict)
    """What of its package decides its probabilities beside the weights, as JSON; empty for our own networks."""

    def predict(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Class probabilities.

        Args:
            tiles_nhwc: uint8 (tiles, tile_px, tile_px, 3), RGB at `mpp`.

        Returns:
            float32 (tiles, classes), rows summing to 1.
        """
        return self.start(tiles_nhwc).result()

    def start(self, tiles_nhwc: NDArray[np.uint8]) -> Running:
        """Begin what `predict` does; on a GPU it runs on while the caller goes on.

        Raises:
            BadRecipeError: one tile alone does not fit into the device's memory.
        """
        return self.forward_only.start(tiles_nhwc)

    @property
    def seconds(self) -> Seconds:
        """Where the time of all results so far went."""
        return self.forward_only.seconds

    @staticmethod
    def tile_hues(tiles_nhwc: NDArray[np.uint8]) -> Hues:
        """Hues of tiles as `predict` takes them, float64 (tiles, 2)."""
        return tile_hues(tiles_nhwc)

    def hue_distance(self, hues_n2: Hues) -> float | None:
        """How far tiles are from what this was trained on (`colour_statistics`); None: not known."""
        return hue_distance(hues_n2, self.hues) if self.hues else None

    @staticmethod
    def tile_focus(tiles_nhwc: NDArray[np.uint8]) -> Focus:
        """Sharpness of tiles as `predict` takes them, float64 (tiles,)."""
        return tile_focus(tiles_nhwc)

    def focus_distance(self, focus_n: Focus) -> float | None:
        """How far tiles are from the sharpness of what this was trained on (`focus_statistics`); None: not known."""
        return focus_distance(focus_n, self.focus) if self.focus else None

    @classmethod
    def load(cls, package: Path, run_on: RunOn = RunOn()) -> Self:
        """Open a model package.

        Raises:
            UnreadableError: files are missing, damaged, of another layout, or not the weights that the id names.
            BadRecipeError: the network cannot be spread over these devices, or they are not there.
        """
        keep_freed_memory()
        package = package.resolve()
        config = read_package_config(package)
        network, weights_sha256 = trained_network(package, config)
        return cls._of(package, config, network, run_on, weights_sha256)

    @classmethod
    def untrained(cls, package: Path, run_on: RunOn = RunOn(), *, seed: int = 0) -> Self:
        """The same network with fresh random weights: the baseline that has seen nothing."""
        keep_freed_memory()
        package = package.resolve()
        config = read_package_config(package)
        torch.manual_seed(seed)
        return cls._of(package, config, fresh_network(package, config), run_on, None)

    @classmethod
    def _of(
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
            hues=HueStatistics(**ours.hues.model_dump()) if ours.hues else None,
            focus=FocusStatistics(**ours.focus.model_dump()) if ours.focus else None,
            run_on=run_on,
            forward_only=_forward_only(config, network, run_on),
        )


def _runs_as(ours: GemslidePart) -> dict[str, Any]:
    """How the bytes of another program's model become probabilities."""
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
            f"the model cannot run on {run_on.device} as asked: {error!s:.300}. Choose other --devices, or look at "
            "precision and compile in the [infer] section."
        ) from error
    return ForwardOnly(
        network=ready,
        probabilities=partial(probabilities, outputs=ours.gives),
        mean=ours.statistics.mean,
        std=ours.statistics.std,
        device=devices[0],
        numerics=run_on.numerics,
        views=VIEWS[run_on.views],
    )
