"""Weights that a run starts from: a model of the project, a safetensors file, or a checkpoint's folder.

Names and shapes must be those of the network. Only the head, the last block, may differ: it is then left fresh, as is
that of a model whose classes are not those of the run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.model_files import MAX_CONFIG_BYTES, WEIGHTS_FILES
from training.foundation.reading import read_json_file, read_regular
from training.foundation.words.counts import counted
from training.recipe.config import FinetuneConfig
from training.run.checkpoint import MANIFEST, WEIGHT, read_checkpoint, unnamed

MAX_WEIGHTS_BYTES = 64 * 2**30


@dataclass(frozen=True)
class StartWeights:
    """Weights that fit a network, all or all but its head."""

    name: str
    """Name of the model, the file or the checkpoint."""
    sha256: str
    state: Mapping[str, Tensor]
    """Tensors by name; without the head's if that stays fresh."""
    head: str
    """Outcome for the head, for people."""
    frozen_blocks: int

    def put_into(self, blocks: Sequence[nn.Module]) -> None:
        """Load into the blocks of a network, and freeze the first ones: they neither learn nor update statistics."""
        nn.Sequential(*blocks).load_state_dict(self.state, strict=False)
        for block in blocks[: self.frozen_blocks]:
            block.requires_grad_(False).eval()

    def as_json(self) -> dict[str, Any]:
        """Entry for the run record."""
        return {
            "id": self.name, "sha256": self.sha256, "loaded_tensors": len(self.state), "head": self.head,
            "frozen_blocks": self.frozen_blocks,
        }  # fmt: skip

    def __str__(self) -> str:
        frozen = (
            f"; the first {counted(self.frozen_blocks, 'block does', 'blocks do')} not learn"
            if self.frozen_blocks
            else ""
        )
        source = f"starts from {self.name} ({self.sha256[:8]})"
        return f"{source}: {counted(len(self.state), 'tensor')} loaded, head {self.head}{frozen}"


def find_start(
    config: FinetuneConfig, blocks: Sequence[nn.Module], classes: Sequence[str], project_dir: Path
) -> StartWeights | None:
    """Find the weights that a recipe's `[finetune]` names; None for fresh ones.

    Args:
        blocks: those of the network, with or without memory.
        classes: those of the run, in order.

    Raises:
        BadRecipeError: the model or file does not exist, or belongs to another network.
        UnreadableError: it is damaged.
    """
    if config.weights is None:
        return None
    if config.freeze_blocks >= len(blocks):
        raise BadRecipeError(
            f"[finetune] freeze_blocks = {config.freeze_blocks}: the network has {counted(len(blocks), 'block')}, and "
            f"the head must learn; use {len(blocks) - 1} or fewer."
        )
    path = _find(config.weights, project_dir)
    given, sha256 = _read(path)
    other_classes = _other_classes(path, classes)
    state, head = _fitting_tensors(given, blocks, config.weights, other_classes)
    return StartWeights(_weights_name(path), sha256, state, head, config.freeze_blocks)


def _find(named: str, project_dir: Path) -> Path:
    candidates = [project_dir / "models" / named / WEIGHTS_FILES["torch"]] if Path(named).name == named else []
    candidates.append(project_dir / named)
    for path in candidates:
        is_named_outside = Path(named).is_absolute() or ".." in Path(named).parts
        if is_named_outside or (path.is_symlink() and path.is_file() and not _leads_inside(path, project_dir)):
            raise BadRecipeError(
                f"[finetune] weights = {named!r}: is outside the project. A recipe from someone else could use this "
                "to read other files: copy the file into the project, or import it (`gemslide model import`)."
            )
        if path.is_file() or (path / MANIFEST).is_file():
            return path
    searched = " and ".join(str(path) for path in candidates)
    raise BadRecipeError(
        f"[finetune] weights = {named!r}: not found at {searched}. Name a model of the project, a safetensors file, or "
        "the folder of a checkpoint."
    )


def _leads_inside(path: Path, project_dir: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(project_dir))


def _read(path: Path) -> tuple[dict[str, Tensor], str]:
    """Tensors by name, and the SHA-256 of the file that holds them."""
    if path.is_dir():
        checkpoint = read_checkpoint(path)
        return unnamed(WEIGHT, checkpoint.tensors()), hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()
    try:
        data = read_regular(path, max_bytes=min(path.stat().st_size, MAX_WEIGHTS_BYTES))
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}.") from error
    try:
        return load(data), hashlib.sha256(data).hexdigest()
    except (SafetensorError, ValueError) as error:
        raise UnreadableError(f"{path}: not a safetensors file, or damaged ({error}).") from error


def _other_classes(weights: Path, classes: Sequence[str]) -> bool:
    """Whether a model package says that its classes are not those of the run."""
    try:
        config = read_json_file(weights.parent / "config.json", max_bytes=MAX_CONFIG_BYTES)
    except (OSError, ValueError):
        return False  # for a file by itself only shapes are known
    names = config.get("class_names") if isinstance(config, dict) else None
    return isinstance(names, list) and list(names) != list(classes)


def _fitting_tensors(
    given: Mapping[str, Tensor], blocks: Sequence[nn.Module], named: str, other_classes: bool
) -> tuple[dict[str, Tensor], str]:
    """The tensors to be loaded, and the outcome for the head."""
    wanted = nn.Sequential(*blocks).state_dict()
    head = f"{len(blocks) - 1}."
    fits = {name: tensor for name, tensor in given.items() if name in wanted and tensor.shape == wanted[name].shape}
    missing = [name for name in wanted if name not in fits and not name.startswith(head)]
    unknown = [name for name in given if name not in wanted and not name.startswith(head)]
    if missing or unknown:
        raise BadRecipeError(
            f"[finetune] weights = {named!r}: not of this network. It lacks {_listed(missing)}, or has them in other "
            f"shapes, and also has {_listed(unknown)}. Use the [model] that it was trained with."
        )
    head_names = [name for name in wanted if name.startswith(head)]
    if other_classes or not all(name in fits for name in head_names):
        reason = "it has other classes" if other_classes else "it has another shape, or none"
        return {name: tensor for name, tensor in fits.items() if name not in head_names}, f"replaced: {reason}"
    return fits, "kept"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) or "nothing"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _weights_name(path: Path) -> str:
    return path.parent.name if path.name == WEIGHTS_FILES["torch"] else path.stem
