"""Interface of training for the pipeline: a tile encoder as a function from tiles to features."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from training.encoders.check import check_features, check_prepared, probe_tiles, run
from training.encoders.open import OpenedEncoder, identify, open_encoder, weights_path
from training.encoders.row import ROWS_DIR as ROWS_DIR
from training.encoders.row import SUFFIX as SUFFIX
from training.encoders.row import read_encoder_file
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.tile_read import TileRead
from training.machine.allocator import keep_for_prediction
from training.predict.forward_only import ForwardOnly, Running, Seconds
from training.predict.numerics import Numerics, RunOn, ready_to_predict


@dataclass(frozen=True)
class Encoder:
    """A tile encoder with what it needs to know about its input."""

    encoder_id: str
    name: str
    row: dict[str, Any]
    """The whole row, as JSON."""
    weights_sha256: str
    dims: int
    tile_px: int
    mpp: float
    mean: list[float]
    std: list[float]
    read: TileRead
    """Slide level that its tiles are read from."""
    run_on: RunOn
    """Device and numerics; the number format is the row's."""
    forward_only: ForwardOnly

    def start(self, tiles_nhwc: NDArray[np.uint8]) -> Running:
        """Start a batch; on a GPU it runs while the caller continues. The result is float32 (tiles, dims).

        Args:
            tiles_nhwc: uint8 (tiles, tile_px, tile_px, 3), RGB at `mpp`; not to be changed before the result is ready.

        Raises:
            BadRecipeError: not even one tile fits into the device's memory.
            UnreadableError: the network returns other numbers than its row says.
        """
        return self.forward_only.start(tiles_nhwc)

    def encode(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """`start`, and wait for the result."""
        return self.start(tiles_nhwc).result()

    @property
    def seconds(self) -> Seconds:
        """Time spent on all results so far, by kind of work."""
        return self.forward_only.seconds

    @classmethod
    def load(cls, row_path: Path, run_on: RunOn = RunOn()) -> Self:
        """Open the encoder that a row describes.

        Args:
            run_on: where it runs; the number format is the row's, and tiles are not turned.

        Raises:
            UnreadableError: weights or code are missing, damaged, or others than the row says; or a file runs code.
            DecompressionBombError: weights that are declared larger than their file.
            BadRecipeError: the row does not fit, a package is not installed, or it cannot run on these devices.
        """
        keep_for_prediction()
        return cls._from_opened(open_encoder(read_encoder_file(row_path)), run_on)

    @classmethod
    def _from_opened(cls, opened: OpenedEncoder, run_on: RunOn) -> Self:
        row = opened.file.row
        run_on = replace(run_on, numerics=replace(run_on.numerics, precision=row.precision), views="none")
        return cls(
            encoder_id=opened.encoder_id,
            name=opened.file.name,
            row=row.model_dump(mode="json"),
            weights_sha256=row.sha256,
            dims=row.dims,
            tile_px=row.tile_px,
            mpp=row.mpp,
            mean=row.mean,
            std=row.std,
            read=row.read,
            run_on=run_on,
            forward_only=_forward_only(opened, run_on),
        )


def _forward_only(opened: OpenedEncoder, run_on: RunOn) -> ForwardOnly:
    row, devices = opened.file.row, [torch.device(name) for name in run_on.device.split("+")]
    try:
        ready = ready_to_predict(
            opened.backbone.network,
            devices,
            run_on.numerics,
            input_shape=(1, 3, row.tile_px, row.tile_px),
            is_ours=opened.backbone.is_ours,
        )
    except (ValueError, torch.AcceleratorError, AssertionError, torch.OutOfMemoryError) as error:
        raise BadRecipeError(
            f"encoder {opened.file.name} cannot run on {run_on.device} as configured: {error!s:.300}. Choose other "
            "--devices, or check precision in its row."
        ) from error
    return _runner(ready, opened, devices[0], run_on.numerics)


def _runner(network: nn.Module, opened: OpenedEncoder, device: torch.device, numerics: Numerics) -> ForwardOnly:
    row = opened.file.row
    return ForwardOnly(network, opened.pooling, row.mean, row.std, device, numerics)


def check_encoder(row_path: Path, *, name: str | None = None, folder: Path | None = None) -> dict[str, Any]:
    """Open an encoder and run it on probe tiles, on the CPU: as it was opened, and as it is prepared for prediction.

    Args:
        name, folder: as `read_encoder_file` takes them.

    Returns:
        its description (encoder_id, name, row), its weights' file, and what was checked.

    Raises:
        GemslideError: the row, the weights or the network are at fault.
    """
    keep_for_prediction()
    opened = open_encoder(read_encoder_file(row_path, name=name, folder=folder))
    row, where = opened.file.row, f"encoder {opened.file.name}"
    cpu = torch.device("cpu")
    unprepared = _runner(opened.backbone.network.eval(), opened, cpu, Numerics())
    original = run(lambda tiles: unprepared.start(tiles).result(), probe_tiles(row.tile_px), where)
    encoder = Encoder._from_opened(opened, RunOn())
    features = check_features(encoder.encode, where, tile_px=row.tile_px, dims=row.dims, precision=row.precision)
    check_prepared(features, original, where, precision=row.precision)
    return {
        **_described(opened.file.name, encoder.row, encoder.encoder_id),
        "weights": str(weights_path(opened.file)),
        "checked": [
            "row",
            "SHA-256 of the weights",
            "three probe tiles: shape, finite, all different",
            "the same alone as among others",
            "the same when prepared for prediction",
        ],
    }


def describe_encoder(row_path: Path) -> dict[str, Any]:
    """Describe an encoder without opening its weights.

    Returns:
        its description as `check_encoder` has it, whether its weights are there (`present`), and `missing`, which says
        what is not; for a row that cannot be used only `name` and `missing`.
    """
    try:
        file = read_encoder_file(row_path)
        described = _described(file.name, file.row.model_dump(mode="json"), None)
    except GemslideError as error:
        return {"name": row_path.stem, "encoder_id": None, "row": None, "present": False, "missing": str(error)}
    try:
        path = weights_path(file)
        described["encoder_id"] = identify(file)
    except GemslideError as error:
        return {**described, "present": False, "missing": str(error)}
    is_there = os.path.isfile(path)
    return {**described, "present": is_there, "missing": "" if is_there else f"{path}: no such file."}


def _described(name: str, row: dict[str, Any], encoder_id: str | None) -> dict[str, Any]:
    return {"name": name, "encoder_id": encoder_id, "row": row}
