"""Attention of a slide-level model inside the slide's store: one NGFF image per model, shaped as predictions are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import WrongSlideError
from pipeline.files import SHORT_WRITE_S, new_folder
from pipeline.places.object_path import StorePath
from pipeline.project import check_name
from pipeline.store.format.layout import ATTENTION
from pipeline.store.format.metadata import first_finding, multiscale, read_json, write_group
from pipeline.store.format.plain_array import read_array, write_array
from pipeline.store.format.root import read_root
from pipeline.store.layers.overlays import MAX_CELL_PX0, complete_layers, layer_path, make_group, nan_pyramid
from training.foundation.errors import UnreadableError

VERSION = 1
MAX_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Attention:
    """Share of each tile of a slide in what a model says of the slide or its patient."""

    model_id: str
    times_average_yx: NDArray[np.float16]
    """float16 (rows, columns): the tile's share, times the number of tiles of the patient: 1 is the average. NaN where
    there is no tile."""
    stride_px0: float
    """Side of a cell in level-0 pixels; cell (0, 0) starts at the slide's top left."""
    side_px0: float
    """Side of the square that a cell's tile covers, from the cell's corner."""
    attributes: dict[str, Any]


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    version: int = Field(ge=VERSION, le=VERSION)
    model_id: str
    stride_px0: float = Field(gt=0, le=MAX_CELL_PX0)
    side_px0: float = Field(gt=0, le=MAX_CELL_PX0)
    made_from: dict[str, Any] = {}


def attention_path(store: Path, model_id: str) -> Path:
    """Path of a model's attention in a store. Raises BadManifestError: the id cannot name a folder."""
    return store / ATTENTION / check_name(model_id, what="model")


def attention_map(
    shares_n: NDArray[np.float32],
    xy0_n2: NDArray[np.int32],
    *,
    stride_px0: float,
    size_wh_px0: tuple[int, int],
    num_tiles: int,
) -> NDArray[np.float16]:
    """Shares of a slide's tiles as a map of cells.

    Args:
        shares_n: of this slide's tiles.
        xy0_n2: their top left corners in level-0 pixels.
        num_tiles: tiles of all slides of the patient.
    """  # fmt: skip
    columns, rows = (int(-(-size // stride_px0)) for size in size_wh_px0)
    values_yx = np.full((rows, columns), np.nan, np.float32)
    column, row = (np.round(xy0_n2 / stride_px0).astype(np.int64)).T
    values_yx[row, column] = np.minimum(shares_n * num_tiles, MAX_HALF)
    return values_yx.astype(np.float16)


@contextmanager
def new_attention(store: Path, attention: Attention, *, mpp0: float) -> Iterator[None]:
    """Write a model's attention; it appears in the store, whole, when the block ends, replacing an older one.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process has been writing the same for too long.
    """
    final = attention_path(store, attention.model_id)
    if not (final.parent / "zarr.json").exists():
        make_group(final.parent)
    pyramid = nan_pyramid(attention.times_average_yx[None])
    spacing = attention.stride_px0 * mpp0
    spacings = [spacing * 2**level for level in range(len(pyramid))]
    entry = multiscale(attention.model_id, "nanmean", "cyx", spacings, offset_um=spacing / 2)
    attributes = {
        "ome": {"version": "0.5", "multiscales": [entry]},
        "gemslide": {
            **attention.attributes,
            "version": VERSION,
            "model_id": attention.model_id,
            "stride_px0": attention.stride_px0,
            "side_px0": attention.side_px0,
        },
    }
    with new_folder(final, wait_s=SHORT_WRITE_S) as folder:
        for index, values in enumerate(pyramid):
            write_array(folder / str(index), values, "cyx", fill_value=float("nan"))
        write_group(folder, attributes)
        yield


def list_attention(store: StorePath) -> list[str]:
    """Ids of models with complete attention on this slide."""
    return complete_layers(store, ATTENTION)


def read_attention(store: StorePath, model_id: str) -> Attention:
    """Attention of one model.

    Raises:
        UnreadableError: missing, damaged, or values that no attention has.
        WrongSlideError: it is of another slide, or another model.
    """
    path = layer_path(store, ATTENTION, model_id)
    try:
        ours = read_json(path / "zarr.json")["attributes"]["gemslide"]
        stated = _Stated.model_validate(ours)
        values_cyx = read_array(store, f"{ATTENTION}/{model_id}/0").astype(np.float16)
        if values_cyx.ndim != 3 or len(values_cyx) != 1 or np.isinf(values_cyx).any() or (values_cyx < 0).any():
            raise ValueError(f"values of shape {values_cyx.shape} that are not shares")
    except ValidationError as error:
        raise _unreadable(path, first_finding(error)) from error
    except (UnreadableError, OSError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    source = read_root(store).source_sha256
    if (stated.model_id, stated.made_from.get("source_sha256", source)) != (model_id, source):
        raise WrongSlideError(
            f"{path}: holds attention of model {stated.model_id!r} on another slide or of another model. It was copied "
            "or renamed: delete it and run `gemslide infer` again."
        )
    return Attention(model_id, values_cyx[0], stated.stride_px0, stated.side_px0, ours)


def _unreadable(path: StorePath, why: str) -> UnreadableError:
    return UnreadableError(
        f"{path}: no readable attention ({why}). The slide has: "
        f"{', '.join(list_attention(path.parents[1])) or 'none'}. Make it again with `gemslide infer`."
    )
