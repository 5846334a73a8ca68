"""Predictions of a model inside the slide store: one NGFF image per model, one cell per stride."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipeline.errors import WrongSlideError
from pipeline.files import SHORT_WRITE_S, new_folder
from pipeline.places.object_path import StorePath
from pipeline.project import check_name
from pipeline.store.format.layout import PREDICTIONS
from pipeline.store.format.metadata import first_finding, multiscale, read_json, write_group
from pipeline.store.format.plain_array import PlainArray, read_array, write_array
from pipeline.store.format.root import read_root
from training.foundation.errors import DiskFullError, UnreadableError
from training.foundation.tile_read import UNSTATED, TileRead
from training.foundation.words.counts import counted
from training.foundation.words.names import is_name

Probabilities = NDArray[np.float16]
"""float16 of shape (classes, rows, columns); NaN = not predicted."""

MAX_CELL_PX0 = 2**24
SUM_TOLERANCE = 0.02
"""Half-precision numbers of a thousand classes miss a sum of 1 by less than this."""


@dataclass(frozen=True)
class Predictions:
    """One model's probabilities over one slide."""

    model_id: str
    class_names: tuple[str, ...]
    probabilities_cyx: Probabilities
    stride_px0: float
    """Side of a cell in level-0 pixels; cell (0, 0) starts at the slide's top left."""
    side_px0: float
    """Side of the square each cell was predicted from, starting at the cell's corner."""
    attributes: dict[str, Any]

    @property
    def tile_read(self) -> TileRead:
        """Level of the slide that the tiles were read from."""
        made_from = self.attributes.get("made_from")
        tiles = made_from.get("tiles") if isinstance(made_from, dict) else None
        return "finest" if isinstance(tiles, dict) and tiles.get("read") == "finest" else UNSTATED

    @property
    def plane_um(self) -> float | None:
        """Height of the focal plane that the tiles were read from; None of a slide with a single one."""
        return _plane_um(self.attributes.get("made_from"))

    def at(self, x_px0: float, y_px0: float) -> dict[str, float] | None:
        """Probabilities per class at a level-0 position; None where nothing was predicted."""
        _, rows, columns = self.probabilities_cyx.shape
        row, column = int(y_px0 // self.stride_px0), int(x_px0 // self.stride_px0)
        if x_px0 < 0 or y_px0 < 0 or row >= rows or column >= columns:
            return None
        values = self.probabilities_cyx[:, row, column].astype(float)
        return None if np.isnan(values).any() else dict(zip(self.class_names, values.tolist(), strict=True))


def predictions_path(store: Path, model_id: str) -> Path:
    """Path of a model's predictions in a store. Raises BadManifestError: the id cannot name a folder."""
    return store / PREDICTIONS / check_name(model_id, what="model")


def layer_path(store: StorePath, group: str, name: str, *, what: str = "model") -> StorePath:
    """Path of one layer of a store, to read it. Raises BadManifestError: the name cannot be a folder's."""
    return store / group / check_name(name, what=what)


@contextmanager
def new_predictions(store: Path, predictions: Predictions, *, mpp0: float) -> Iterator[None]:
    """Write a model's probabilities; they appear in the store, whole, when the block ends, replacing older ones.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process has been writing the same for too long.
    """
    final = predictions_path(store, predictions.model_id)
    if not (final.parent / "zarr.json").exists():
        make_group(final.parent)
    pyramid = nan_pyramid(predictions.probabilities_cyx)
    spacing = predictions.stride_px0 * mpp0
    spacings = [spacing * 2**i for i in range(len(pyramid))]
    entry = multiscale(predictions.model_id, "nanmean", "cyx", spacings, offset_um=spacing / 2)
    # The image's own frame counts from the centre of its first pixel in NGFF; half a cell is the contract.
    attributes = {
        "ome": {"version": "0.5", "multiscales": [entry]},
        "gemslide": {
            **predictions.attributes,
            "model_id": predictions.model_id,
            "class_names": list(predictions.class_names),
            "stride_px0": predictions.stride_px0,
            "side_px0": predictions.side_px0,
        },
    }
    with new_folder(final, wait_s=SHORT_WRITE_S) as folder:
        for index, values in enumerate(pyramid):
            write_array(folder / str(index), values, "cyx", fill_value=float("nan"))
        write_group(folder, attributes)
        yield


def make_group(folder: Path) -> None:
    """Create the group of all layers of one kind; if the disk is full, no folder is left."""
    try:
        write_group(folder, {})
    except DiskFullError:
        with suppress(OSError):  # others write in it
            folder.rmdir()
        raise


def complete_layers(store: StorePath, group: str) -> list[str]:
    """Names of the complete layers of one kind; folders with names that no layer can have are left out."""
    parent = store / group
    if not parent.is_dir():
        return []
    return sorted(path.name for path in parent.iterdir() if is_name(path.name) and (path / "zarr.json").exists())


def write_predictions(store: Path, predictions: Predictions, *, mpp0: float) -> None:
    """Put a model's probabilities into the store; they appear whole or not at all, replacing older ones."""
    with new_predictions(store, predictions, mpp0=mpp0):
        pass


def list_predictions(store: StorePath) -> list[str]:
    """Model ids with complete predictions on this slide; folders that no model can have written are left out."""
    return complete_layers(store, PREDICTIONS)


@dataclass(frozen=True)
class PredictionGrid:
    """Predictions as described by their metadata; their values are not read."""

    model_id: str
    class_names: tuple[str, ...]
    shape_yx: tuple[int, int]
    stride_px0: float
    plane_um: float | None = None
    """Height of the focal plane that the tiles were read from; None of a slide with a single one."""


def read_prediction_grid(store: StorePath, model_id: str) -> PredictionGrid:
    """Classes and cells of one model's predictions.

    Raises:
        UnreadableError: missing, or damaged.
    """
    path = layer_path(store, PREDICTIONS, model_id)
    try:
        stored = _StoredMetadata.model_validate(read_json(path / "zarr.json")["attributes"]["gemslide"])
        shape = PlainArray.open(store, f"{PREDICTIONS}/{model_id}/0").shape
        if len(shape) != 3 or shape[0] != len(stored.class_names):
            raise ValueError(f"values of shape {shape} for {counted(len(stored.class_names), 'class', 'classes')}")
    except ValidationError as error:
        raise _unreadable(path, first_finding(error)) from error
    except (UnreadableError, OSError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    shape_yx = shape[1], shape[2]
    return PredictionGrid(model_id, stored.class_names, shape_yx, stored.stride_px0, _plane_um(stored.made_from))


def read_predictions(store: StorePath, model_id: str) -> Predictions:
    """Predictions of one model.

    Raises:
        UnreadableError: missing, damaged, or values that are not probabilities.
        WrongSlideError: they were made from another slide's pixels, or by another model.
    """
    path = layer_path(store, PREDICTIONS, model_id)
    try:
        ours = read_json(path / "zarr.json")["attributes"]["gemslide"]
        stored = _StoredMetadata.model_validate(ours)
        values = read_array(store, f"{PREDICTIONS}/{model_id}/0")
        _check_probabilities(values, stored)
    except ValidationError as error:
        raise _unreadable(path, first_finding(error)) from error
    except (UnreadableError, OSError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    source = read_root(store).source_sha256
    made_from = stored.made_from.get("source_sha256", source)
    if (stored.model_id, made_from) != (model_id, source):
        raise WrongSlideError(
            f"{path}: holds predictions of model {stored.model_id!r} on the slide with SHA-256 {made_from!s:.12}…, not "
            f"of {model_id!r} on {source:.12}…. They were copied or renamed: delete them and run `gemslide infer` "
            "again."
        )
    return Predictions(
        model_id=model_id,
        class_names=stored.class_names,
        probabilities_cyx=values.astype(np.float16),
        stride_px0=stored.stride_px0,
        side_px0=stored.side_px0,
        attributes=ours,
    )


def _unreadable(path: StorePath, why: str) -> UnreadableError:
    return UnreadableError(
        f"{path}: no readable predictions ({why}). The slide has: "
        f"{', '.join(list_predictions(path.parents[1])) or 'none'}. Make them (again) with `gemslide infer`."
    )


class _StoredMetadata(BaseModel):
    """Metadata in which predictions describe themselves."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    model_id: str
    class_names: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(min_length=1, max_length=1000)
    stride_px0: float = Field(gt=0, le=MAX_CELL_PX0)
    side_px0: float = Field(gt=0, le=MAX_CELL_PX0)
    made_from: dict[str, Any] = {}

    @field_validator("class_names")
    @classmethod
    def differ(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise ValueError("the same class twice")
        return names


def _plane_um(made_from: Any) -> float | None:
    tiles = made_from.get("tiles") if isinstance(made_from, dict) else None
    height = tiles.get("plane_um") if isinstance(tiles, dict) else None
    if not isinstance(height, int | float) or isinstance(height, bool) or not math.isfinite(height):
        return None
    return float(height)


def _check_probabilities(values_cyx: NDArray[Any], stored: _StoredMetadata) -> None:
    """Check that each cell is NaN in every class, or has shares of one. Raises ValueError."""
    if values_cyx.ndim != 3 or len(values_cyx) != len(stored.class_names):
        raise ValueError(
            f"values of shape {values_cyx.shape} for {counted(len(stored.class_names), 'class', 'classes')}"
        )
    known = np.isfinite(values_cyx)
    if np.isinf(values_cyx).any() or not (known.all(0) == known.any(0)).all():
        raise ValueError("cells with values that are not finite in some classes")
    predicted = values_cyx[:, known[0]].astype(np.float32)
    if not predicted.size:
        return
    lowest, highest = float(predicted.min()), float(predicted.max())
    furthest = float(np.abs(predicted.sum(0) - 1).max())
    if lowest < 0 or highest > 1 or furthest > SUM_TOLERANCE:
        raise ValueError(
            f"not probabilities: from {lowest:.3g} to {highest:.3g}, and sums that miss 1 by up to {furthest:.3g}"
        )


def nan_pyramid(values_cyx: Probabilities) -> list[Probabilities]:
    """Datasets from fine to coarse until a side is at most 64 cells; a coarse cell averages what was predicted."""
    pyramid = [values_cyx]
    while max(pyramid[-1].shape[1:]) > 64:
        pyramid.append(_nan_mean_2x2(pyramid[-1]))
    return pyramid


def _nan_mean_2x2(values_cyx: Probabilities) -> Probabilities:
    classes, rows, columns = values_cyx.shape
    padding = ((0, 0), (0, rows % 2), (0, columns % 2))
    padded = np.pad(values_cyx.astype(np.float32), padding, constant_values=np.nan)
    blocks = padded.reshape(classes, padded.shape[1] // 2, 2, padded.shape[2] // 2, 2)
    counts = np.isfinite(blocks).sum((2, 4))
    sums = np.nansum(blocks, axis=(2, 4))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(np.float16)
