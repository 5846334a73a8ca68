"""What the pipeline may use: a model package as a classifier of tiles."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load

from training.augment import to_input
from training.colour_statistics import Hues, HueStatistics, hue_distance, tile_hues
from training.errors import UnreadableError
from training.foundation.reading import read_regular
from training.models.build import probabilities
from training.package_config import PackageConfig, read_package_config
from training.parallel_plan import blocks_of

_MAX_HEADER_BYTES = 100 * 2**20
"""The safetensors format allows no longer header."""


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
    variant: str
    stain: dict[str, Any] | None
    """How tiles must be normalised before `predict` sees them; None: not at all."""
    hues: HueStatistics | None
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
            return np.asarray(probabilities(self.network(images), self.variant).cpu().numpy())

    @staticmethod
    def tile_hues(tiles_nhwc: NDArray[np.uint8]) -> Hues:
        """Hues of tiles as `predict` takes them, float64 (tiles, 2)."""
        return tile_hues(tiles_nhwc)

    def hue_distance(self, hues_n2: Hues) -> float | None:
        """How far tiles are from what this was trained on (`colour_statistics`); None: not known."""
        return hue_distance(hues_n2, self.hues) if self.hues else None

    @classmethod
    def load(cls, package: Path, device: str = "cpu") -> Self:
        """Open a model package.

        Raises:
            UnreadableError: files are missing, damaged, of another layout, or not the weights that the id names.
        """
        package = package.resolve()
        config = read_package_config(package)
        network = _network(package, config)
        weights = _read_weights(package, config)
        try:
            network.load_state_dict(load(weights))
        except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
            raise UnreadableError(f"{package}/model.safetensors: {error}. Copy the package again.") from error
        return cls._of(package, config, network, device, hashlib.sha256(weights).hexdigest())

    @classmethod
    def untrained(cls, package: Path, *, seed: int = 0, device: str = "cpu") -> Self:
        """The same network with fresh random weights: the baseline that has seen nothing."""
        package = package.resolve()
        config = read_package_config(package)
        torch.manual_seed(seed)
        return cls._of(package, config, _network(package, config), device, None)

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
            variant=ours.model.variant,
            stain=ours.stain.model_dump() if ours.stain else None,
            hues=HueStatistics(**ours.hues.model_dump()) if ours.hues else None,
        )


def _network(package: Path, config: PackageConfig) -> torch.nn.Module:
    """The network with fresh weights; made only when its weights can be those in the file."""
    with torch.device("meta"):  # without memory
        needed_bytes = sum(tensor.nbytes for tensor in _blocks(package, config).state_dict().values())
    try:
        found_bytes = (package / "model.safetensors").stat().st_size
    except OSError as error:
        raise UnreadableError(f"{package}/model.safetensors: {error.strerror}. Copy the package again.") from error
    if not needed_bytes < found_bytes <= needed_bytes + _MAX_HEADER_BYTES:
        raise UnreadableError(
            f"{package}: its network has {needed_bytes} bytes of weights, model.safetensors has {found_bytes} bytes. "
            "They do not belong together, or the file is cut short: copy the package again."
        )
    return _blocks(package, config)


def _blocks(package: Path, config: PackageConfig) -> torch.nn.Sequential:
    try:
        return torch.nn.Sequential(*blocks_of(config.gemslide.model, config.patch_size_pixels))
    except ValueError as error:
        raise UnreadableError(f"{package}/config.json: describes no known network ({error}).") from error


def _read_weights(package: Path, config: PackageConfig) -> bytes:
    """The file's bytes, which must be those that the package's id and `config.json` name."""
    path = package / "model.safetensors"
    try:
        weights = read_regular(path, max_bytes=path.stat().st_size)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}. Copy the package again.") from error
    found = hashlib.sha256(weights).hexdigest()
    if config.gemslide.weights_sha256 not in (found, None) or not package.name.endswith(f"-{found[:8]}"):
        said = config.gemslide.weights_sha256
        raise UnreadableError(
            f"{path}: has the SHA-256 {found[:16]}…, which is not that of model {package.name!r}"
            f"{f' ({said[:16]}…)' if said else ''}. A model's id ends with the first 8 digits of its weights' "
            "SHA-256: give the folder its own name again, or copy the package again."
        )
    return weights
