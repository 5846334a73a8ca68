"""What the pipeline may use: a model package as a classifier of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from training.augment import to_input
from training.colour_statistics import Hues, HueStatistics, hue_distance, tile_hues
from training.focus_statistics import Focus, FocusStatistics, focus_distance, tile_focus
from training.foundation.model_files import Runtime
from training.models.build import Outputs, probabilities
from training.package_config import PackageConfig, read_package_config
from training.package_network import fresh_network, trained_network


@dataclass(frozen=True)
class Classifier:
    """A trained network with what it expects."""

    model_id: str
    weights_sha256: str | None
    """None: fresh random weights."""
    class_names: tuple[str, ...]
    tile_px: int
    mpp: float
    network: torch.nn.Module
    mean: list[float]
    std: list[float]
    device: torch.device
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

    def predict(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Class probabilities.

        Args:
            tiles_nhwc: uint8 (tiles, tile_px, tile_px, 3), RGB at `mpp`.

        Returns:
            float32 (tiles, classes), rows summing to 1.
        """
        with torch.inference_mode():
            images = to_input(tiles_nhwc, self.mean, self.std).to(self.device)
            return np.asarray(probabilities(self.network(images), self.outputs).cpu().numpy())

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
    def load(cls, package: Path, device: str = "cpu") -> Self:
        """Open a model package.

        Raises:
            UnreadableError: files are missing, damaged, of another layout, or not the weights that the id names.
        """
        package = package.resolve()
        config = read_package_config(package)
        network, weights_sha256 = trained_network(package, config)
        return cls._of(package, config, network, device, weights_sha256)

    @classmethod
    def untrained(cls, package: Path, *, seed: int = 0, device: str = "cpu") -> Self:
        """The same network with fresh random weights: the baseline that has seen nothing."""
        package = package.resolve()
        config = read_package_config(package)
        torch.manual_seed(seed)
        return cls._of(package, config, fresh_network(package, config), device, None)

    @classmethod
    def _of(
        cls, package: Path, config: PackageConfig, network: torch.nn.Module, device: str, weights_sha256: str | None
    ) -> Self:
        ours = config.gemslide
        target = torch.device(device)
        network = network.eval().to(target)
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        return cls(
            model_id=package.name,
            weights_sha256=weights_sha256,
            class_names=tuple(config.class_names),
            tile_px=config.patch_size_pixels,
            mpp=config.spacing_um_px,
            network=network,
            mean=ours.statistics.mean,
            std=ours.statistics.std,
            device=target,
            split_sha256=ours.split_sha256,
            outputs=ours.gives,
            runtime=ours.runtime,
            stain=ours.stain.model_dump() if ours.stain else None,
            hues=HueStatistics(**ours.hues.model_dump()) if ours.hues else None,
            focus=FocusStatistics(**ours.focus.model_dump()) if ours.focus else None,
        )
