"""The door for the pipeline: a model package as something that looks at tiles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file

from training.augment import to_input
from training.errors import UnreadableError
from training.models.build import build_blocks, probabilities

__all__ = ["Classifier", "UnreadableError"]


@dataclass(frozen=True)
class Classifier:
    """A trained network with what it expects."""

    model_id: str
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

    @classmethod
    def load(cls, package: Path, device: str = "cpu") -> Self:
        """Open a model package.

        Raises:
            UnreadableError: files are missing, damaged or of another layout.
        """
        config = _read_config(package)
        network = _network(package, config)
        try:
            network.load_state_dict(load_file(package / "model.safetensors"))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise UnreadableError(f"{package}/model.safetensors: {error}. Copy the package again.") from error
        return cls._of(package, config, network, device)

    @classmethod
    def untrained(cls, package: Path, *, seed: int = 0, device: str = "cpu") -> Self:
        """The same network with fresh random weights: the baseline that has seen nothing."""
        config = _read_config(package)
        torch.manual_seed(seed)
        return cls._of(package, config, _network(package, config), device)

    @classmethod
    def _of(cls, package: Path, config: dict[str, Any], network: torch.nn.Module, device: str) -> Self:
        ours = config["gemslide"]
        target = torch.device(device)
        network = network.eval().to(target)
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        return cls(
            model_id=package.name,
            class_names=tuple(config["class_names"]),
            tile_px=int(config["patch_size_pixels"]),
            mpp=float(config["spacing_um_px"]),
            network=network,
            mean=list(ours["statistics"]["mean"]),
            std=list(ours["statistics"]["std"]),
            device=target,
            split_sha256=str(ours["split_sha256"]),
            variant=str(ours["model"]["variant"]),
            stain=ours.get("stain"),
        )


def _read_config(package: Path) -> dict[str, Any]:
    try:
        config = json.loads((package / "config.json").read_text(encoding="utf-8"))
        if config["spec_version"] != "1.0" or "gemslide" not in config:
            raise KeyError("spec_version 1.0 with a `gemslide` part")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableError(
            f"{package}: not a model package of gemslide ({type(error).__name__}: {error}). "
            "Name a folder below models/, made by `gemslide train`."
        ) from error
    assert isinstance(config, dict)
    return config


def _network(package: Path, config: dict[str, Any]) -> torch.nn.Module:
    model = config["gemslide"]["model"]
    try:
        blocks = build_blocks(
            name=model["name"],
            depth=model["depth"],
            num_classes=model["num_classes"],
            variant=model["variant"],
            norm=model["norm"],
            side_px=int(config["patch_size_pixels"]),
        )
        return torch.nn.Sequential(*blocks)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"{package}/config.json: describes no known network ({error}).") from error
