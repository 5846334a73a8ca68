"""Model packages: weights, their input and their training data, in WSInfer's layout."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from training.data.colour_statistics import HueStatistics
from training.data.facts import DataFacts
from training.data.focus_statistics import FocusStatistics
from training.foundation.model_files import WEIGHTS_FILES
from training.foundation.publish import SHORT_WRITE_S, new_folder
from training.foundation.tile_read import TileRead
from training.foundation.words.counts import counted
from training.models.build import outputs_of
from training.packages.card import CardContent
from training.packages.files import write_package_files, wsinfer_config
from training.packages.intervals import Intervals
from training.packages.metrics import Metrics
from training.recipe.config import Recipe


@dataclass(frozen=True)
class PackageContent:
    """Everything in a package besides its weights."""

    recipe: Recipe
    recipe_name: str
    classes: tuple[str, ...]
    tile_px: int
    mpp: float
    mean: list[float]
    std: list[float]
    stain: dict[str, Any] | None
    """Stain normalisation of tiles before the network saw them, with the target's numbers; None if none."""
    split_fingerprint: str
    run_id: str
    plan: dict[str, Any]
    which: str
    """best or last"""
    epoch: int
    metrics: dict[str, float]
    read: TileRead | None = None
    """Slide level that the tiles were read from; None if the dataset does not say."""
    isa: str | None = None
    """CPU instructions that it was trained with."""
    hues: HueStatistics | None = None
    """Hues of the training tiles."""
    focus: FocusStatistics | None = None
    """Sharpness of the training tiles."""
    data: DataFacts | None = None
    intervals: Intervals | None = None
    """Intervals of `metrics`."""
    start: str | None = None
    """Weights that it started from, described for people; None if fresh."""


def write_packages(models_dir: Path, packages: Sequence[tuple[dict[str, Tensor], PackageContent]]) -> list[str]:
    """Write `models/<recipe>-<8 hex>/` for each; all appear together, complete, or none does.

    The same weights have the same id: the first of several descriptions is written, and replaces one of an earlier run.

    Returns:
        the model ids, in the order given.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another run keeps writing the same id.
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
            write_package_files(
                folder,
                {WEIGHTS_FILES["torch"]: weights},
                config=_config(content, sha256),
                metrics=Metrics(content.metrics, content.intervals),
                card=_card_content(model_id, content),
            )
    return ids


def _config(content: PackageContent, weights_sha256: str) -> dict[str, Any]:
    model = content.recipe.model
    return {
        **wsinfer_config(
            architecture=f"{model.name}-{model.depth}",
            class_names=content.classes,
            tile_px=content.tile_px,
            mpp=content.mpp,
            mean=content.mean,
            std=content.std,
        ),
        "gemslide": {
            "runtime": "torch",
            "outputs": outputs_of(model.variant),
            "model": model.model_dump(mode="json"),
            "norm": model.norm,
            "statistics": {"mean": content.mean, "std": content.std},
            "stain": content.stain,
            "read": content.read,
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
            "focus": asdict(content.focus) if content.focus else None,
            "data": asdict(content.data) if content.data else None,
        },
    }


def _card_content(model_id: str, content: PackageContent) -> CardContent:
    model, plan, train = content.recipe.model, content.plan, content.recipe.train
    length = counted(train.epochs, "epoch") if train.epochs else counted(train.steps or 0, "optimizer step")
    optim = content.recipe.optim
    augment = ", ".join(f"{key} {_word(value)}" for key, value in content.recipe.augment.model_dump().items() if value)
    return CardContent(
        model_id=model_id,
        network=f"{model.name} of depth {model.depth}, {model.variant}, {model.norm} normalisation",
        class_names=content.classes,
        tile_px=content.tile_px,
        mpp=content.mpp,
        stain=content.stain["method"] if content.stain else None,
        read=content.read,
        data=content.data,
        split_sha256=content.split_fingerprint,
        metrics=content.metrics,
        intervals=content.intervals,
        trained=[
            f"Run `{content.run_id}`, recipe `{content.recipe_name}`, seed {train.seed}: {length}, {train.precision}; "
            f"this is the {content.which} epoch, number {content.epoch}.",
            f"{optim.name}, learning rate {optim.lr:g} ({optim.schedule}), weight decay {optim.weight_decay:g}"
            f"{'' if optim.decay_all else ' (none of norms and biases)'}, "
            f"batches of {counted(content.recipe.parallel.batch_size, 'tile')}{_further_settings(content.recipe)}.",
            *([f"It {content.start}."] if content.start else []),
            f"Augmentation: {augment or 'none'}.",
            f"Strategy {plan['strategy']} (stages: {plan['num_stages']}; micro-batches: {plan['num_microbatches']}, "
            f"each of {counted(content.recipe.parallel.microbatch_size, 'tile')}).",
            f"Mean {_numbers(content.mean)} and standard deviation {_numbers(content.std)} of red, green and blue are "
            "used to normalise every tile.",
        ],
    )


def _further_settings(recipe: Recipe) -> str:
    """Clauses for further training settings that the recipe sets."""
    optim = recipe.optim
    clauses = {
        "labels smoothed by": optim.label_smoothing, "weights averaged with decay": optim.ema_decay,
        "gradients clipped to a norm of": optim.clip_norm,
    }  # fmt: skip
    return "".join(f"; {words} {value:g}" for words, value in clauses.items() if value)


def _word(value: object) -> str:
    return "on" if value is True else str(value)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
