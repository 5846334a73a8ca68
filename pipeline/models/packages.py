"""Model packages from and for other programs: the work is done by modules of training, in separate processes.

A third-party file is opened in a process that ends afterwards.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.models.launch import ask
from pipeline.models.sample_tiles import find_tiles
from pipeline.project import Project
from training.foundation.errors import UnreadableError
from training.foundation.model_files import MAX_CONFIG_BYTES
from training.foundation.reading import read_json_file, read_regular
from training.foundation.tile_read import UNSTATED, TileRead

NUM_TILES = 3
"""Real tiles on which an export must agree with its model; equals training.tools.export_model's largest batch."""
MOST_WSINFER_TILES, WSINFER_AREA_PX = 32, 32 * 224**2
"""Limits on tiles that are also read as WSInfer reads them, and on their total area: large ones take long."""
MAX_CARD_BYTES = 2**20
MAX_TILE_PX, MPP_RANGE = 2**14, (0.05, 50)
"""Limits of a package's tiles, as in `training.packages.config`."""


def export_model(
    package: Path,
    project: Project,
    *,
    to: str,
    out: Path,
    slide_ids: list[str],
    allow_reading_difference: bool = False,
) -> dict[str, Any]:
    """Write a package's network for other programs, if it agrees with the package on tiles of the project's slides.

    Args:
        to: "onnx", "torchscript" or "wsinfer".
        out: folder to write; must not exist yet.
        slide_ids: slides whose tiles are compared.
        allow_reading_difference: for "wsinfer": write it even if WSInfer, which reads tiles in its own way, gives
            clearly different probabilities.

    Returns:
        As `training.tools.export_model.export_package`.

    Raises:
        GemslideError: a fault in the package, the slides or the target; or the outputs differ.
    """
    tile_px, mpp, read = _tiles_of(package)
    most = max(NUM_TILES, min(MOST_WSINFER_TILES, WSINFER_AREA_PX // tile_px**2)) if to == "wsinfer" else NUM_TILES
    tiles = find_tiles(project, slide_ids, tile_px=tile_px, mpp=mpp, at_least=NUM_TILES, at_most=most)
    with tempfile.TemporaryDirectory(prefix="gemslide-") as folder:
        np.save(Path(folder) / "tiles.npy", tiles.read(read))
        arguments = [str(package), "--format", to, "--out", str(out.absolute()), "--tiles", f"{folder}/tiles.npy"]
        if to == "wsinfer":
            np.save(Path(folder) / "wsinfer.npy", tiles.read_as_wsinfer())
            arguments += ["--wsinfer-tiles", f"{folder}/wsinfer.npy"]
            arguments += ["--allow-reading-difference"] * allow_reading_difference
        return ask("training.tools.export_model", arguments, "the export")


def _tiles_of(package: Path) -> tuple[int, float, TileRead]:
    """Side, microns per pixel and level of a package's tiles; the rest of it is checked by training.

    Raises:
        UnreadableError: the package does not state them.
    """
    path = package / "config.json"
    try:
        config = read_json_file(path, max_bytes=MAX_CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: cannot be read ({error}). Copy the package again.") from error
    tile_px, mpp = (_number(config, key) for key in ("patch_size_pixels", "spacing_um_px"))
    ours = config.get("gemslide") if isinstance(config, dict) else None
    read: TileRead = "finest" if isinstance(ours, dict) and ours.get("read") == "finest" else UNSTATED
    if 8 <= tile_px <= MAX_TILE_PX and tile_px == int(tile_px) and MPP_RANGE[0] <= mpp <= MPP_RANGE[1]:
        return int(tile_px), mpp, read
    raise UnreadableError(
        f"{path}: patch_size_pixels = {tile_px:g}, spacing_um_px = {mpp:g}: invalid tile size. Copy the package again."
    )


def _number(config: Any, key: str) -> float:
    """A number from the configuration; NaN for anything else."""
    value = config.get(key) if isinstance(config, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


@dataclass(frozen=True)
class ImportRequest:
    """A third-party model: a folder in WSInfer's or our format, or one file with its config.json.

    Attributes:
        config: WSInfer's config.json, if it is not beside the file.
        name: name of the model, without the hash.
        trust: SHA-256 of a file that runs code, as stated by its provider.
        entry_point: installed code that builds the network.
        outputs: "logits" or "probabilities"; None: determined by running it.
    """

    source: Path
    config: Path | None = None
    name: str | None = None
    trust: str | None = None
    entry_point: str | None = None
    outputs: str | None = None


def import_model(request: ImportRequest, project: Project) -> dict[str, Any]:
    """Make a package from a third-party model.

    Returns:
        As `training.tools.import_model.import_model`.

    Raises:
        GemslideError: a fault in the model.
    """
    source = request.source
    if not source.exists():
        raise UnreadableError(
            f"{source}: no such file or folder. Name a model's folder, or its .onnx, .pt or .safetensors file."
        )
    options = {name.replace("_", "-"): value for name, value in vars(request).items() if name != "source"}
    given = [f"--{option}={value}" for option, value in options.items() if value is not None]
    arguments = [str(source.absolute()), "--models", str(project.models_dir.absolute()), *given]
    return ask("training.tools.import_model", arguments, "the import")


def check_model(package: Path) -> dict[str, Any]:
    """Open a package and run its network once.

    Returns:
        As `training.tools.check_model.check_package`.

    Raises:
        GemslideError: a fault in the package.
    """
    return ask("training.tools.check_model", [str(package.absolute())], "the check")


def read_card(package: Path) -> str:
    """A package's card, made safe to show on a terminal.

    Raises:
        UnreadableError: the package has none.
    """
    path = package / "card.md"
    try:
        text = read_regular(path, max_bytes=MAX_CARD_BYTES).decode(errors="replace")
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}. Copy the package again.") from error
    return "".join(letter for letter in text if letter == "\n" or letter.isprintable())
