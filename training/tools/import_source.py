"""Source given to `gemslide model import`: the network's file, its runtime, and its description."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.model_files import WEIGHTS_FILES, Runtime
from training.networks.entry_points import GROUP, find_entry_point
from training.packages.wsinfer import Described, read_wsinfer_config

BY_SUFFIX: dict[str, Runtime] = {".onnx": "onnx", ".pt": "torchscript", ".ts": "torchscript", ".safetensors": "torch"}
GENERIC_STEMS = frozenset({"model", "torchscript_model", "weights", "pytorch_model"})
"""File names that say nothing about the model."""
MAX_NAME = 55
"""With nine characters of hash this gives a model id of at most 64."""


@dataclass(frozen=True)
class Source:
    """A model from elsewhere, not opened yet."""

    weights: Path
    runtime: Runtime
    entry_point: EntryPoint | None
    described: Described
    name: str
    """Name that the model will have, without the hash."""


def find_import_source(
    source: Path, *, config: Path | None = None, name: str | None = None, entry_point: str | None = None
) -> Source:
    """Identify `source`: a folder in WSInfer's layout or ours, or one file with a config.json beside it.

    Raises:
        UnreadableError: it does not exist, cannot be imported, or its config cannot be used.
        BadRecipeError: the name is not valid, or an entry point is given for a file that needs none.
    """
    source = source.resolve()
    if not source.exists():
        raise UnreadableError(
            f"{source}: no such file or folder. Name a model's folder, or its .onnx, .pt or .safetensors file."
        )
    folder = source if source.is_dir() else source.parent
    described = read_wsinfer_config(config or folder / "config.json")
    entry = find_entry_point(entry_point, str(source)) if entry_point else _named_entry_point(described)
    weights, runtime = _find_in_folder(folder, described, entry) if source.is_dir() else _read_file(source, entry)
    if runtime == "torch":
        _check_ours(weights, described)
    if entry_point and runtime != "entry-point":
        raise BadRecipeError(f"--entry-point {entry_point}: {weights.name} contains its network, and needs none.")
    used = entry if runtime == "entry-point" else None
    return Source(weights, runtime, used, described, check_model_name(name or _default_name(source, weights)))


def _named_entry_point(described: Described) -> EntryPoint | None:
    """The registered network that a config names: an export of ours does, others may by their `architecture`."""
    ours = described.gemslide.get("entry_point")
    named = ours.get("name") if isinstance(ours, dict) else None
    return next((e for e in entry_points(group=GROUP) if e.name in (named, described.architecture)), None)


def _find_in_folder(folder: Path, described: Described, entry: EntryPoint | None) -> tuple[Path, Runtime]:
    """The preferred file of a folder: one that runs no code before one that does."""
    safetensors, onnx, script = (folder / WEIGHTS_FILES[kind] for kind in ("torch", "onnx", "torchscript"))
    if safetensors.is_file() and entry:
        return safetensors, "entry-point"
    if safetensors.is_file() and _is_ours(described):
        return safetensors, "torch"
    if onnx.is_file():
        return onnx, "onnx"
    if script.is_file():
        return script, "torchscript"
    if safetensors.is_file():
        _check_ours(safetensors, described)
    raise UnreadableError(
        f"{folder}: contains no model.safetensors, model.onnx or torchscript_model.pt. Name the folder that does, or "
        "the file itself."
    )


def _read_file(path: Path, entry: EntryPoint | None) -> tuple[Path, Runtime]:
    runtime = BY_SUFFIX.get(path.suffix.lower())
    if runtime is None:
        raise UnreadableError(
            f"{path}: not a model that can be imported. Supported are .onnx, .pt (TorchScript) and .safetensors. A "
            "pickled checkpoint (.pth, .ckpt, .bin, .pkl) runs code and has no description of its network: have its "
            "weights saved as .safetensors, and import that with `--entry-point`."
        )
    return path, "entry-point" if runtime == "torch" and entry else runtime


def _is_ours(described: Described) -> bool:
    return isinstance(described.gemslide.get("model"), dict) and described.gemslide.get("runtime", "torch") == "torch"


def _check_ours(weights: Path, described: Described) -> None:
    if not _is_ours(described):
        known = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
        raise UnreadableError(
            f"{weights}: weights of the architecture {described.architecture[:60]!r}, which gemslide does not build, "
            f"and no installed package registers it (entry-point group {GROUP}: {known}). Name one that does with "
            "`--entry-point`, or import the model's ONNX or TorchScript file."
        )


def check_model_name(name: str) -> str:
    """Return `name` if it can begin a model's id.

    Raises:
        BadRecipeError: the name is not valid.
    """
    if re.fullmatch(rf"[A-Za-z0-9_-][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}", name):
        return name
    raise BadRecipeError(
        f"--name {name[:200]!r}: a model's name is 1 to {MAX_NAME} letters, digits, dots, underscores and hyphens, and "
        "does not start with a dot."
    )


def _default_name(source: Path, weights: Path) -> str:
    """The folder's or the file's name, with characters that an id cannot contain replaced."""
    stem = source.name if source.is_dir() else weights.stem
    if stem in GENERIC_STEMS:
        stem = weights.parent.name
    without_hash = re.sub(r"-[0-9a-f]{8}$", "", stem)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", without_hash).strip(".")[:MAX_NAME] or "model"
