"""Model packages from and for other programs: the work is done by modules of training, in processes of their own.

A file of somebody else's is opened in a process that ends with it.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import UnreadableError
from pipeline.launch import ask
from pipeline.project import Project
from pipeline.sample_tiles import sample_tiles
from training.foundation.model_files import MAX_CONFIG_BYTES
from training.foundation.reading import read_json_file, read_regular

NUM_TILES = 3
"""Real tiles on which an export must agree with its model; as many as training.export_model's largest batch."""
MAX_CARD_BYTES = 2**20
MAX_TILE_PX, MPP_RANGE = 2**14, (0.05, 50)
"""Of a package's tiles: as `training.package_config` has it."""


def export_model(package: Path, project: Project, *, to: str, out: Path, slide_ids: list[str]) -> dict[str, Any]:
    """Write a package's network for other programs, once it agrees with the package on tiles of the project's slides.

    Args:
        to: "onnx", "torchscript" or "wsinfer".
        out: folder to write; must not be there yet.
        slide_ids: whose tiles to compare on.

    Returns:
        as `training.export_model.export_package`.

    Raises:
        GemslideError: what is wrong with the package, the slides or the place; or the outputs differ.
    """
    tile_px, mpp = _looks_at(package)
    tiles_nhwc = sample_tiles(project, slide_ids, tile_px=tile_px, mpp=mpp, count=NUM_TILES)
    with tempfile.TemporaryDirectory(prefix="gemslide-") as folder:
        np.save(Path(folder) / "tiles.npy", tiles_nhwc)
        arguments = [str(package), "--format", to, "--out", str(out.absolute()), "--tiles", f"{folder}/tiles.npy"]
        return ask("training.export_model", arguments, "the export")


def _looks_at(package: Path) -> tuple[int, float]:
    """Side and microns per pixel of a package's tiles; everything else of it is for training to judge.

    Raises:
        UnreadableError: it does not say.
    """
    path = package / "config.json"
    try:
        config = read_json_file(path, max_bytes=MAX_CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: cannot be read ({error}). Copy the package again.") from error
    tile_px, mpp = (_number(config, key) for key in ("patch_size_pixels", "spacing_um_px"))
    if 8 <= tile_px <= MAX_TILE_PX and tile_px == int(tile_px) and MPP_RANGE[0] <= mpp <= MPP_RANGE[1]:
        return int(tile_px), mpp
    raise UnreadableError(
        f"{path}: patch_size_pixels = {tile_px:g}, spacing_um_px = {mpp:g}: no size of a tile. Copy the package again."
    )


def _number(config: Any, key: str) -> float:
    """NaN where it is none."""
    value = config.get(key) if isinstance(config, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def import_model(
    source: Path,
    project: Project,
    *,
    config: Path | None = None,
    name: str | None = None,
    trust: str | None = None,
    entry_point: str | None = None,
    outputs: str | None = None,
) -> dict[str, Any]:
    """Make a package of somebody else's model: a folder of WSInfer's or ours, or one file with its config.json.

    Args:
        config: WSInfer's config.json, where it does not lie beside the file.
        name: of the model, without the hash.
        trust: SHA-256 of a file that runs code, as those name it who passed it on.
        entry_point: which installed code builds the network.
        outputs: "logits" or "probabilities"; None: found out by running it.

    Returns:
        as `training.import_model.import_model`.

    Raises:
        GemslideError: what is wrong with it.
    """
    if not source.exists():
        raise UnreadableError(
            f"{source}: no such file or folder. Name a model's folder, or its .onnx, .pt or .safetensors file."
        )
    options = {"config": config, "name": name, "trust": trust, "entry-point": entry_point, "outputs": outputs}
    given = [f"--{option}={value}" for option, value in options.items() if value is not None]
    arguments = [str(source.absolute()), "--models", str(project.models_dir.absolute()), *given]
    return ask("training.import_model", arguments, "the import")


def check_model(package: Path) -> dict[str, Any]:
    """Open a package and run its network once.

    Returns:
        as `training.check_model.check_package`.

    Raises:
        GemslideError: what is wrong with it.
    """
    return ask("training.check_model", [str(package.absolute())], "the check")


def read_card(package: Path) -> str:
    """A package's card, as it may be shown on a terminal.

    Raises:
        UnreadableError: it has none.
    """
    path = package / "card.md"
    try:
        text = read_regular(path, max_bytes=MAX_CARD_BYTES).decode(errors="replace")
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}. Copy the package again.") from error
    return "".join(letter for letter in text if letter == "\n" or letter.isprintable())
