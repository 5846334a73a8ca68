"""Model packages from and for other programs: the work is done by modules of training, in processes of their own.

A file of somebody else's is opened in a process that ends with it.
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
"""Real tiles on which an export must agree with its model; as many as training.tools.export_model's largest batch."""
MOST_WSINFER_TILES, WSINFER_AREA_PX = 32, 32 * 224**2
"""Tiles that are also read as WSInfer reads them, and their area together: large ones take long."""
MAX_CARD_BYTES = 2**20
MAX_TILE_PX, MPP_RANGE = 2**14, (0.05, 50)
"""Of a package's tiles: as `training.packages.config` has it."""


def export_model(
    package: Path,
    project: Project,
    *,
    to: str,
    out: Path,
    slide_ids: list[str],
    allow_reading_difference: bool = False,
) -> dict[str, Any]:
    """Write a package's network for other programs, once it agrees with the package on tiles of the project's slides.

    Args:
        to: "onnx", "torchscript" or "wsinfer".
        out: folder to write; must not be there yet.
        slide_ids: whose tiles to compare on.
        allow_reading_difference: for "wsinfer": also where WSInfer, which reads tiles in its own way, gives clearly
            other probabilities.

    Returns:
        as `training.tools.export_model.export_package`.

    Raises:
        GemslideError: what is wrong with the package, the slides or the place; or the outputs differ.
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
    """Side, microns per pixel and level of a package's tiles; everything else of it is for training to judge.

    Raises:
        UnreadableError: it does not say.
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
        f"{path}: patch_size_pixels = {tile_px:g}, spacing_um_px = {mpp:g}: no size of a tile. Copy the package again."
    )


def _number(config: Any, key: str) -> float:
    """NaN where it is none."""
    value = config.get(key) if isinstance(config, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


@dataclass(frozen=True)
class ImportRequest:
    """A model of somebody else's: a folder of WSInfer's or ours, or one file with its config.json.

    Attributes:
        config: WSInfer's config.json, where it does not lie beside the file.
        name: of the model, without the hash.
        trust: SHA-256 of a file that runs code, as those name it who passed it on.
        entry_point: which installed code builds the network.
        outputs: "logits" or "probabilities"; None: found out by running it.
    """

    source: Path
    config: Path | None = None
    name: str | None = None
    trust: str | None = None
    entry_point: str | None = None
    outputs: str | None = None


def import_model(request: ImportRequest, project: Project) -> dict[str, Any]:
    """Make a package of somebody else's model.

    Returns:
        as `training.tools.import_model.import_model`.

    Raises:
        GemslideError: what is wrong with it.
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
        as `training.tools.check_model.check_package`.

    Raises:
        GemslideError: what is wrong with it.
    """
    return ask("training.tools.check_model", [str(package.absolute())], "the check")


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
