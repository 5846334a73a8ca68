"""Model packages: weights, what they expect and what they were trained on, in WSInfer's layout."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from training.config import Recipe

RESEARCH_USE = "Research use only. Not for diagnosis."


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


def write_package(models_dir: Path, state: dict[str, Tensor], content: PackageContent) -> Path:
    """Write `models/<recipe>-<8 hex>/`; it appears whole or not at all.

    Returns:
        the package's folder; its name is the model id.
    """
    weights = save({name: tensor.contiguous() for name, tensor in sorted(state.items())})
    model_id = f"{content.recipe_name}-{hashlib.sha256(weights).hexdigest()[:8]}"
    partial = models_dir / f".{model_id}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _write(partial / "model.safetensors", weights)
    _write(partial / "config.json", json.dumps(_config(content), indent=1).encode())
    _write(partial / "metrics.json", json.dumps(content.metrics, indent=1).encode())
    _write(partial / "card.md", _card(model_id, content).encode())
    final = models_dir / model_id
    if final.exists():  # the same weights again: same name, newer description
        shutil.rmtree(final)
    partial.rename(final)
    return final


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _config(content: PackageContent) -> dict[str, Any]:
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
            "split_sha256": content.split_fingerprint,
            "parallel": content.plan,
            "which": content.which,
            "epoch": content.epoch,
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
