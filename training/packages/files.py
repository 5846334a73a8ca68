"""The files of a model package, as training and import both write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.foundation.publish import write_bytes_atomic
from training.packages.card import CardContent
from training.packages.card import card as card_page
from training.packages.metrics import Metrics


def write_package_files(
    folder: Path, weights: Mapping[str, bytes], *, config: Mapping[str, Any], metrics: Metrics, card: CardContent
) -> None:
    """Write the contents of a package into its folder.

    Args:
        weights: contents by file name.

    Raises:
        DiskFullError: no space, or not writable.
    """
    for name, content in weights.items():
        write_bytes_atomic(folder / name, content)
    write_bytes_atomic(folder / "config.json", json.dumps(config, indent=1).encode())
    write_bytes_atomic(folder / "metrics.json", metrics.as_json())
    write_bytes_atomic(folder / "card.md", card_page(card).encode())


def wsinfer_config(
    *, architecture: str, class_names: Sequence[str], tile_px: int, mpp: float, mean: list[float], std: list[float]
) -> dict[str, Any]:
    """The seven keys of WSInfer 1.0 (wsinfer-zoo, model-config.schema.json)."""
    return {
        "spec_version": "1.0",
        "architecture": architecture,
        "num_classes": len(class_names),
        "patch_size_pixels": tile_px,
        "spacing_um_px": mpp,
        "class_names": list(class_names),
        "transform": [
            {"name": "Resize", "arguments": {"size": tile_px}},
            {"name": "ToTensor"},
            {"name": "Normalize", "arguments": {"mean": mean, "std": std}},
        ],
    }
