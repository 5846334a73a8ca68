"""Model packages: weights, what they expect and what they were trained on, in WSInfer's layout."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from training.colour_statistics import HueStatistics
from training.config import Recipe
from training.foundation.publish import SHORT_WRITE_S, new_folder, write_bytes_atomic
from training.foundation.research_use import RESEARCH_USE


@dataclass(frozen=True)
class PackageContent:
    """Everything a package says besides its weights."""

    recipe: Recipe
    recipe_name: str
    classes: tuple[str, ...]
    tile_px: int
    mpp: float
    mean: list[float]
    std: list[float]
    stain: dict[str, Any] | None
    """How tiles were normalised before the network saw them, with the target's numbers; None: not at all."""
    split_fingerprint: str
    run_id: str
    plan: dict[str, Any]
    which: str
    """best or last"""
    epoch: int
    metrics: dict[str, float]
    isa: str | None = None
    """CPU instructions that it was trained with."""
    hues: HueStatistics | None = None
    """Of the training tiles."""


def write_packages(models_dir: Path, packages: Sequence[tuple[dict[str, Tensor], PackageContent]]) -> list[str]:
    """Write `models/<recipe>-<8 hex>/` for each; they appear together, whole, or not at all.

    The same weights have the same id: of several descriptions the first is written, and replaces one of an earlier run.

    Returns:
        the model ids, in the order given.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another run writes the same id for long.
    """
    ids, written = [], set()
    with ExitStack() as published:
        for state, content in packages:
            weights = save({name: tensor.contiguous() for name, tensor in sorted(state.items())})
            sha256 = hashlib.sha256(weights).hexdigest()
            model_id = f"{content.recipe_name}-{sha256[:8]}"
            ids.append(model_id)
            if model_id in written:
                continue
            written.add(model_id)
            folder = published.enter_context(new_folder(models_dir / model_id, wait_s=SHORT_WRITE_S))
            write_bytes_atomic(folder / "model.safetensors", weights)
            write_bytes_atomic(folder / "config.json", json.dumps(_config(content, sha256), indent=1).encode())
            write_bytes_atomic(folder / "metrics.json", json.dumps(content.metrics, indent=1).encode())
            write_bytes_atomic(folder / "card.md", _card(model_id, content).encode())
    return ids


def _config(content: PackageContent, weights_sha256: str) -> dict[str, Any]:
    model = content.recipe.model
    return {
        "spec_version": "1.0",
        "architecture": f"{model.name}-{model.depth}",
        "num_classes": model.num_classes,
        "patch_size_pixels": content.tile_px,
        "spacing_um_px": content.mpp,
        "class_names": list(content.classes),
        "transform": [
            {"name": "Resize", "arguments": {"size": content.tile_px}},
            {"name": "ToTensor"},
            {"name": "Normalize", "arguments": {"mean": content.mean, "std": content.std}},
        ],
        "gemslide": {
            "model": model.model_dump(mode="json"),
            "norm": model.norm,
            "statistics": {"mean": content.mean, "std": content.std},
            "stain": content.stain,
            "class_order": list(content.classes),
            "run_id": content.run_id,
            "weights_sha256": weights_sha256,
            "split_sha256": content.split_fingerprint,
            "parallel": content.plan,
            "which": content.which,
            "epoch": content.epoch,
            "threads": content.recipe.train.threads,
            "isa": content.isa,
            "hues": asdict(content.hues) if content.hues else None,
        },
    }


def _card(model_id: str, content: PackageContent) -> str:
    rows = "\n".join(f"| {name} | {value:.4f} |" for name, value in content.metrics.items())
    model = content.recipe.model
    stain = f", their stain normalised by {content.stain['method']}" if content.stain else ""
    return f"""# {model_id}

**{RESEARCH_USE}**

{model.name} of depth {model.depth} ({model.norm} normalisation),
{model.num_classes} classes: {", ".join(content.classes)}.
It reads tiles of {content.tile_px} × {content.tile_px} px at {content.mpp} µm/px{stain}.

Trained by run `{content.run_id}` with recipe `{content.recipe_name}`
({content.plan["strategy"]}, {content.plan["num_stages"]} stages, {content.plan["num_microbatches"]} micro-batches of
{content.recipe.parallel.microbatch_size}), seed {content.recipe.train.seed};
{content.which} epoch, number {content.epoch}.
Tiles and split: SHA-256 `{content.split_fingerprint}`.

| measure on the validation tiles | value |
|---|---|
{rows}

These numbers are of the validation tiles of that tile set. They say nothing about other scanners, stains or organs.
"""
