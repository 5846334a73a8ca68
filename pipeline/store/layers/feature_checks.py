"""Checks of features: what their metadata must state, and which values and corners of tiles they can have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipeline.store.layers.overlays import MAX_CELL_PX0
from training.foundation.errors import ImplausibleOutputError
from training.foundation.words.names import NAME_PATTERN

FeatureValues = NDArray[np.float16]
"""float16 of shape (tiles, features)."""
Corners = NDArray[np.int32]
"""int32 of shape (tiles, 2): x and y of the tiles' top left corners in level-0 pixels."""

VERSION = 1
MAX_HALF = float(np.finfo(np.float16).max)
_EXPONENT = np.uint16(0x7C00)
"""Bits that are all set in half-precision numbers that are not finite."""
_ID_DIGITS = 8

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class EncoderKey(_Stated):
    """The encoder that a key of features names."""

    encoder_id: str | None = None
    weights_sha256: Sha256 | None = None


class MadeFrom(_Stated):
    """Everything that features depend on; further keys are for whoever made them."""

    source_sha256: Sha256
    encoder: EncoderKey = EncoderKey()
    tiles: dict[str, Any] = {}


class FeatureMetadata(_Stated):
    """Metadata in which features describe themselves."""

    version: Literal[1]
    encoder_id: str = Field(pattern=NAME_PATTERN)
    encoder: dict[str, Any]
    """The encoder's row; of features from another program, what was stated about them, and `imported`."""
    weights_sha256: Sha256 | None
    """None for features from another program."""
    side_px0: float = Field(gt=0, le=MAX_CELL_PX0)
    stride_px0: float = Field(gt=0, le=MAX_CELL_PX0)
    made_from: MadeFrom
    values_sha256: Sha256

    @model_validator(mode="after")
    def origin_is_stated(self) -> Self:
        imported = self.encoder.get("imported")
        if (self.weights_sha256 is None) != (imported is not None):
            raise ValueError("features have either the SHA-256 of their encoder's weights, or were imported")
        if imported is not None and not (isinstance(imported, dict) and isinstance(self.encoder.get("name"), str)):
            raise ValueError(f"imported {imported!r:.80} by an encoder called {self.encoder.get('name')!r:.80}")
        return self

    def foreign_encoder(self, encoder_id: str, weights_sha256: str | None) -> str | None:
        """Why these are not the features of an encoder, a clause; None if they are.

        Args:
            weights_sha256: of the encoder; None: not compared.
        """
        key = self.made_from.encoder
        if {self.encoder_id, key.encoder_id or encoder_id} != {encoder_id}:
            other = self.encoder_id if self.encoder_id != encoder_id else key.encoder_id
            return f"holds features of encoder {other!r}, not of {encoder_id!r}"
        known = {key.weights_sha256 or self.weights_sha256, weights_sha256 or self.weights_sha256}
        if known != {self.weights_sha256}:
            return f"holds features of an encoder {encoder_id!r} with other weights ({self.weights_sha256!s:.12}…)"
        if self.weights_sha256 is None and encoder_id != imported_id(self.encoder):
            return f"holds imported features of encoder {imported_id(self.encoder)!r}, not of {encoder_id!r}"
        return None


def imported_id(row: Mapping[str, Any]) -> str:
    """Id of an encoder of another program: its name, and 8 digits of the SHA-256 over what is stated about it.

    The file's own hash is left out: the features of all slides of a cohort have one encoder.

    Args:
        row: `name`, `imported` {`from`, `sha256`}, and whatever else is stated.
    """
    stated = {**row, "imported": {**row["imported"], "sha256": None}}
    content = json.dumps(stated, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"{row['name']}-{hashlib.sha256(content.encode()).hexdigest()[:_ID_DIGITS]}"


def values_sha256(values_nd: FeatureValues, xy0_n2: Corners) -> str:
    """SHA-256 of all values, then all corners, as little-endian numbers in C order, in hexadecimal."""
    digest = hashlib.sha256()
    for array, dtype in ((values_nd, "<f2"), (xy0_n2, "<i4")):
        digest.update(np.ascontiguousarray(array, dtype).view(np.uint8).reshape(-1).data)
    return digest.hexdigest()


def to_float16(values_nd: NDArray[np.floating[Any]], where: str, *, first_tile: int = 0) -> FeatureValues:
    """Features in half precision, as they are stored.

    Args:
        where: the slide and the encoder, or the file, for the message.
        first_tile: number of the first row, if these are not all.

    Raises:
        ImplausibleOutputError: a value is not finite, or too large for half precision.
    """
    with np.errstate(over="ignore"):
        halves = values_nd.astype(np.float16)
    bad = _not_finite(halves)
    if bad.any():
        tile, feature = np.argwhere(bad)[0].tolist()
        raise ImplausibleOutputError(
            f"{where}: feature {feature} of tile {first_tile + tile} is {values_nd[tile, feature]:g}; features are "
            f"stored as half-precision numbers, which are finite and at most {MAX_HALF:,.0f}. Check the encoder "
            "that made them: its weights, mean and std."
        )
    return halves


def check_values(values_nd: NDArray[Any], xy0_n2: NDArray[Any]) -> None:
    """Check that each tile has one row of finite numbers, and one corner. Raises ValueError."""
    if values_nd.dtype != np.float16 or values_nd.ndim != 2 or not values_nd.size:
        raise ValueError(f"values of type {values_nd.dtype} and shape {values_nd.shape}; float16 (tiles, features)")
    if xy0_n2.dtype != np.int32 or xy0_n2.shape != (len(values_nd), 2):
        raise ValueError(
            f"corners of type {xy0_n2.dtype} and shape {xy0_n2.shape} for {len(values_nd)} tiles; int32 (tiles, 2)"
        )
    bad = _not_finite(values_nd)
    if bad.any():
        tile, feature = np.argwhere(bad)[0].tolist()
        raise ValueError(f"feature {feature} of tile {tile} is {values_nd[tile, feature]:g}")


def check_corners(xy0_n2: NDArray[np.integer[Any]], size_wh_px0: tuple[int, int]) -> None:
    """Check that each tile begins inside the slide, and no two at one place. Raises ValueError."""
    outside = ((xy0_n2 < 0) | (xy0_n2 >= np.array(size_wh_px0))).any(1)
    if outside.any():
        tile = int(outside.argmax())
        width, height = size_wh_px0
        raise ValueError(
            f"tile {tile} begins at {tuple(xy0_n2[tile].tolist())}, outside the slide of {width} × {height} px0"
        )
    places = xy0_n2[:, 1].astype(np.int64) * size_wh_px0[0] + xy0_n2[:, 0]
    order = np.argsort(places, kind="stable")
    same = np.flatnonzero(np.diff(places[order]) == 0)
    if same.size:
        first, second = order[same[0] : same[0] + 2].tolist()
        raise ValueError(f"tiles {first} and {second} both begin at {tuple(xy0_n2[first].tolist())}")


def _not_finite(halves: FeatureValues) -> NDArray[np.bool_]:
    return np.asarray((halves.view(np.uint16) & _EXPONENT) == _EXPONENT)
