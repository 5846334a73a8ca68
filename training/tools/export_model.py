"""`python -m training.tools.export_model PACKAGE --format onnx|torchscript|wsinfer --out FOLDER --tiles TILES.npy`.

Writes a folder for other programs and `gemslide model import`, but only if the exported file gives the same numbers as
the package on real tiles, and for WSInfer also nearly the same on the same regions as WSInfer reads them
(`--wsinfer-tiles`, which decides: `export_reading.py`). Reports the result in one JSON line on standard output.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.data.augment import to_input
from training.foundation.errors import BadRecipeError, ImplausibleOutputError, UnreadableError
from training.foundation.model_files import WEIGHTS_FILES, Runtime
from training.foundation.publish import new_folder, write_bytes_atomic
from training.foundation.reading import read_json_file, read_regular
from training.foundation.words.counts import counted
from training.models.build import Outputs, probabilities
from training.networks.onnx_network import OnnxNetwork
from training.networks.torchscript import run_torchscript
from training.packages.config import PackageConfig, read_package_config
from training.packages.network import trained_network
from training.tools.export_formats import FORMATS, Format, onnx_bytes, torchscript_bytes, with_logits
from training.tools.export_reading import ReadingDifference, reading_difference
from training.tools.json_process import reply

TOLERANCE = 1e-4
"""Largest difference on any tile: of a probability, and of an output relative to the largest one if that is above 1
(float32 has seven digits)."""
BATCH_SIZES = (1, 2, 3)
MAX_TEXT_BYTES = 2**20


@dataclass(frozen=True)
class Exported:
    """A file that holds the network."""

    name: str
    data: bytes
    reopened: nn.Module
    expected: nn.Module
    """Network whose numbers it must reproduce."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class WsinferTiles:
    """The same regions as WSInfer reads them."""

    tiles_nhwc: NDArray[np.uint8]
    """As many tiles as the model's own, in the same order."""
    allow_difference: bool = False
    """Whether to accept differences above `training.tools.export_reading.MAX_MEAN_DIFFERENCE`."""


def export_package(
    package: Path, to: Format, out: Path, tiles_nhwc: NDArray[np.uint8], wsinfer: WsinferTiles | None = None
) -> dict[str, Any]:
    """Write a package's network in another format.

    Args:
        out: folder to write; must not exist yet.
        tiles_nhwc: real tiles, uint8 (tiles, tile_px, tile_px, 3), as many as the largest of BATCH_SIZES or more.
        wsinfer: for that format; None to ignore how its reading differs.

    Returns:
        what was written, and the largest difference between the two networks' outputs.

    Raises:
        UnreadableError: the package is damaged, or `out` exists. BadRecipeError: this export is not possible.
        ImplausibleOutputError: the exported network gives different numbers. DiskFullError: no space.
    """
    package = package.resolve()
    config = read_package_config(package)
    _check_can_be_exported(package.name, config, to, out)
    network, sha256 = trained_network(package, config)
    network.eval()
    images = _images(tiles_nhwc, config)
    exported = _export(network, config, to, images[: max(BATCH_SIZES)])
    gives: Outputs = "logits" if to == "wsinfer" else config.gemslide.gives
    difference = largest_difference(exported.expected, exported.reopened, images, exported.name, outputs=gives)
    reading = None
    if wsinfer is not None:
        theirs = _images(wsinfer.tiles_nhwc, config)
        on_theirs = largest_difference(exported.expected, exported.reopened, theirs, exported.name, outputs=gives)
        difference = max(difference, on_theirs)
        reading = reading_difference(
            (network, images, config.gemslide.gives), (exported.reopened, theirs, gives),
            allowed=wsinfer.allow_difference,
        )  # fmt: skip
    _write(package, config, to, out, exported, _Origin(package.name, sha256, difference, reading))
    return {
        "model_id": package.name, "weights_sha256": sha256, "format": to, "out": str(out),
        "file": exported.name, "sha256": exported.sha256,
        "largest_difference": difference, "tolerance": TOLERANCE,
        "tiles": max(BATCH_SIZES), "batch_sizes": list(BATCH_SIZES),
        "wsinfer_reading": reading.as_dict() if reading else None,
        "wsinfer_reading_text": str(reading) if reading else None,
    }  # fmt: skip


def _check_can_be_exported(model_id: str, config: PackageConfig, to: Format, out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise UnreadableError(f"--out {out}: already exists; it may hold work. Delete it or name another folder.")
    if config.gemslide.runtime not in ("torch", "entry-point"):
        raise BadRecipeError(
            f"model {model_id}: is a {config.gemslide.runtime} file itself, which cannot be converted to another "
            "format. Copy its folder to pass it on."
        )
    if to == "wsinfer" and config.gemslide.stain is not None:
        raise BadRecipeError(
            f"model {model_id}: the stain of its tiles is normalised ({config.gemslide.stain.method}) before the "
            "network sees them, and WSInfer does not do that: results would differ. Export it as onnx or "
            'torchscript for a program that does, or train a model with [data] stain = "none".'
        )


@dataclass(frozen=True)
class _Origin:
    """The package that an export comes from, and the difference between the two."""

    model_id: str
    weights_sha256: str
    difference: float
    reading: ReadingDifference | None

    def as_dict(self) -> dict[str, Any]:
        known = {
            "model_id": self.model_id,
            "weights_sha256": self.weights_sha256,
            "largest_difference": self.difference,
        }
        return known | ({"wsinfer_reading": self.reading.as_dict()} if self.reading else {})


def _images(tiles_nhwc: NDArray[np.uint8], config: PackageConfig) -> Tensor:
    statistics = config.gemslide.statistics
    return to_input(tiles_nhwc, statistics.mean, statistics.std).contiguous()


def _export(network: nn.Module, config: PackageConfig, to: Format, images: Tensor) -> Exported:
    if to == "onnx":
        data = onnx_bytes(network, images)
        reopened = OnnxNetwork(
            data, "the exported file", tile_px=config.patch_size_pixels, num_classes=config.num_classes
        )
        return Exported(WEIGHTS_FILES["onnx"], data, reopened, network)
    expected = with_logits(network, config.gemslide.gives) if to == "wsinfer" else network
    data = torchscript_bytes(expected, images)
    return Exported(WEIGHTS_FILES["torchscript"], data, run_torchscript(data, "the exported file"), expected)


def largest_difference(
    expected: nn.Module, exported: nn.Module, images: Tensor, name: str, *, outputs: Outputs
) -> float:
    """Largest difference between two networks on the same images, in batches of several sizes, as for TOLERANCE.

    Raises:
        ImplausibleOutputError: it is above TOLERANCE, or not a number.
    """
    worst = 0.0
    with torch.inference_mode():
        for size in BATCH_SIZES:
            ours, theirs = expected(images[:size]), exported(images[:size])
            in_outputs = (ours - theirs).abs().max() / ours.abs().max().clamp_min(1)
            in_probabilities = (probabilities(ours, outputs) - probabilities(theirs, outputs)).abs().max()
            difference = float(torch.stack([in_outputs, in_probabilities]).max())
            if not difference <= TOLERANCE:
                raise ImplausibleOutputError(
                    f"{name}: its outputs differ by {difference:.3g} from the model's on a batch of "
                    f"{counted(size, 'real tile')}; at most {TOLERANCE:g} is allowed. Nothing was written. This "
                    "network cannot be exported in this format: use another --format."
                )
            worst = max(worst, difference)
    return worst


def _write(package: Path, config: PackageConfig, to: Format, out: Path, exported: Exported, origin: _Origin) -> None:
    described = _described(package, to, exported, origin, config)
    card = _read(read_regular, package / "card.md", max_bytes=MAX_TEXT_BYTES)
    metrics = _read(read_regular, package / "metrics.json", max_bytes=MAX_TEXT_BYTES)
    note = (
        f"\n## Export\n\n`{exported.name}` was exported from model `{package.name}` (weights' SHA-256 "
        f"`{origin.weights_sha256}`). On {len(BATCH_SIZES)} batches of real tiles its outputs differ from that model's "
        f"by at most {origin.difference:.2g}.\n"
    )
    if origin.reading:
        note += f"\nIncluding the reading of tiles: {origin.reading}.\n"
    with new_folder(out) as folder:
        write_bytes_atomic(folder / exported.name, exported.data)
        if to == "wsinfer":
            weights = package / "model.safetensors"
            write_bytes_atomic(folder / weights.name, _read(read_regular, weights, max_bytes=weights.stat().st_size))
        write_bytes_atomic(folder / "config.json", json.dumps(described, indent=1).encode())
        write_bytes_atomic(folder / "metrics.json", metrics)
        write_bytes_atomic(folder / "card.md", card + note.encode())


def _described(package: Path, to: Format, exported: Exported, origin: _Origin, config: PackageConfig) -> dict[str, Any]:
    """`config.json` of the export: the package's own, adapted to the exported file."""
    described: dict[str, Any] = _read(read_json_file, package / "config.json", max_bytes=MAX_TEXT_BYTES)
    ours = {**described["gemslide"], "exported_from": origin.as_dict()}
    if to == "wsinfer":
        ours |= {"weights_sha256": origin.weights_sha256, "files": {exported.name: exported.sha256}}
    else:
        runtime: Runtime = to
        ours |= {
            "runtime": runtime, "outputs": config.gemslide.gives, "weights_sha256": exported.sha256, "files": {},
            "entry_point": None,
        }  # fmt: skip
    return {**described, "gemslide": ours}


def _read(read: Callable[..., Any], path: Path, *, max_bytes: int) -> Any:
    try:
        return read(path, max_bytes=max_bytes)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: cannot be read ({error}). Copy the package again.") from error


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m training.tools.export_model")
    parser.add_argument("package", type=Path)
    parser.add_argument("--format", required=True, choices=FORMATS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiles", type=Path, required=True)
    parser.add_argument("--wsinfer-tiles", type=Path, help="the same regions as WSInfer reads them")
    parser.add_argument("--allow-reading-difference", action="store_true")
    arguments = parser.parse_args()
    tiles_nhwc = np.load(arguments.tiles, allow_pickle=False)
    wsinfer = None
    if arguments.wsinfer_tiles:
        theirs = np.load(arguments.wsinfer_tiles, allow_pickle=False)
        wsinfer = WsinferTiles(theirs, arguments.allow_reading_difference)
    return reply(lambda: export_package(arguments.package, arguments.format, arguments.out, tiles_nhwc, wsinfer))


if __name__ == "__main__":
    sys.exit(main())
