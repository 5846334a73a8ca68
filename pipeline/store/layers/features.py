"""Features of a slide's tiles inside its store: one zarr group per encoder, one row of values per tile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.errors import WrongSlideError
from pipeline.files import SHORT_WRITE_S, new_folder
from pipeline.places.object_path import StorePath
from pipeline.project import check_name
from pipeline.store.format.layout import FEATURES
from pipeline.store.format.metadata import first_finding, read_json, write_group
from pipeline.store.format.plain_array import MAX_ARRAY_BYTES, PlainArray, write_array
from pipeline.store.layers.feature_checks import (
    VERSION,
    Corners,
    FeatureMetadata,
    FeatureValues,
    check_corners,
    check_values,
    values_sha256,
)
from pipeline.store.layers.feature_checks import imported_id as imported_id
from pipeline.store.layers.feature_checks import to_float16 as to_float16
from pipeline.store.layers.overlays import complete_layers, layer_path, make_group
from pipeline.store.layers.stored_features import MAKE_AGAIN
from pipeline.store.layers.stored_features import StoredFeatures as StoredFeatures
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import EmptyTableError, ImplausibleOutputError, UnreadableError
from training.foundation.words.counts import counted

CHUNK_TILES = 1024
"""Rows of values in a chunk."""
CHUNK_CORNERS = 2**16
VALUES, CORNERS = "values", "xy0"


@dataclass(frozen=True)
class Features:
    """One encoder's features of a slide's tiles."""

    encoder_id: str
    values_nd: FeatureValues
    xy0_n2: Corners
    side_px0: float
    """Side of the square each row describes, starting at its corner."""
    stride_px0: float
    """Distance between neighbouring tiles; the side, where another program's file does not state it."""
    attributes: dict[str, Any]

    @property
    def tile_px(self) -> int | None:
        """Side of a finished tile in its own pixels; None where another program's file does not state it."""
        tile_px = self._stated("tile_px")
        return tile_px if type(tile_px) is int and tile_px > 0 else None

    @property
    def mpp(self) -> float | None:
        """Microns per pixel of a finished tile; None where another program's file does not state it."""
        mpp = self._stated("mpp")
        return float(mpp) if isinstance(mpp, int | float) and mpp > 0 else None

    def _stated(self, name: str) -> object:
        made_from = self.attributes.get("made_from")
        tiles = made_from.get("tiles") if isinstance(made_from, dict) else None
        return tiles.get(name) if isinstance(tiles, dict) else None


def features_path(store: Path, encoder_id: str) -> Path:
    """Path of an encoder's features in a store. Raises BadManifestError: the id cannot name a folder."""
    return store / FEATURES / check_name(encoder_id, what="encoder")


@contextmanager
def new_features(store: Path, features: Features) -> Iterator[None]:
    """Write an encoder's features; they appear in the store, whole, when the block ends, replacing older ones.

    `features.attributes` must have the encoder's row as `encoder`, `weights_sha256`, and `made_from` with
    `source_sha256` and `tiles`.

    Raises:
        EmptyTableError: no tiles. ImplausibleOutputError: values or corners that cannot be.
        WrongSlideError: they are another slide's, or another encoder's.
        DiskFullError: no space, or not writable. LockedError: another process has been writing the same for too long.
    """
    final = features_path(store, features.encoder_id)
    attributes = _checked_attributes(StoreReader(store), features)
    if not (final.parent / "zarr.json").exists():
        make_group(final.parent)
    num_tiles, dims = features.values_nd.shape
    with new_folder(final, wait_s=SHORT_WRITE_S) as folder:
        write_array(
            folder / VALUES, features.values_nd, ("tile", "feature"), fill_value=float("nan"),
            chunk_shape=(min(num_tiles, CHUNK_TILES), dims),
        )  # fmt: skip
        write_array(
            folder / CORNERS, features.xy0_n2, ("tile", "xy"), fill_value=0,
            chunk_shape=(min(num_tiles, CHUNK_CORNERS), 2),
        )  # fmt: skip
        write_group(folder, {"gemslide": attributes})
        yield


def _checked_attributes(reader: StoreReader, features: Features) -> dict[str, Any]:
    """The attribute `gemslide` to write, once features and all that they state are found possible."""
    where = f"slide {reader.slide_id}, encoder {features.encoder_id}"
    if not len(features.values_nd):
        raise EmptyTableError(f"{where}: no tiles, so there are no features to store.")
    try:
        check_values(features.values_nd, features.xy0_n2)
        check_corners(features.xy0_n2, reader.size_wh_px0)
        if features.values_nd.nbytes > MAX_ARRAY_BYTES:
            raise ValueError(f"{features.values_nd.shape} values are more than {MAX_ARRAY_BYTES:,} bytes")
        attributes = {
            **features.attributes,
            "version": VERSION,
            "encoder_id": features.encoder_id,
            "side_px0": features.side_px0,
            "stride_px0": features.stride_px0,
            "values_sha256": values_sha256(features.values_nd, features.xy0_n2),
        }
        stated = FeatureMetadata.model_validate(attributes)
    except ValidationError as error:
        raise ImplausibleOutputError(f"{where}: {first_finding(error)}. Nothing was written.") from error
    except ValueError as error:
        raise ImplausibleOutputError(f"{where}: {error}. Nothing was written.") from error
    _check_belongs(features_path(reader.folder, features.encoder_id), stated, reader.source_sha256, None)
    return attributes


def list_features(store: StorePath) -> list[str]:
    """Ids of encoders with complete features of this slide; folders that no encoder can have written are left out."""
    return complete_layers(store, FEATURES)


def open_features(store: StorePath, encoder_id: str, *, weights_sha256: str | None = None) -> StoredFeatures:
    """Open an encoder's features: their metadata are checked, their values are not read.

    Args:
        weights_sha256: of the encoder's weights; None: any.

    Raises:
        UnreadableError: missing, or damaged.
        WrongSlideError: they are another slide's, another encoder's, or were made with other weights.
    """
    path = layer_path(store, FEATURES, encoder_id, what="encoder")
    try:
        ours = read_json(path / "zarr.json")["attributes"]["gemslide"]
        stated = FeatureMetadata.model_validate(ours)
        values, corners = (PlainArray.open(store, f"{FEATURES}/{encoder_id}/{name}") for name in (VALUES, CORNERS))
        _check_arrays(values, corners)
    except ValidationError as error:
        raise _unreadable(path, first_finding(error)) from error
    except (UnreadableError, OSError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    reader = StoreReader(store)
    _check_belongs(path, stated, reader.source_sha256, weights_sha256)
    return StoredFeatures(
        encoder_id, stated.side_px0, stated.stride_px0, ours, reader.size_wh_px0, values=values, corners=corners
    )


def read_features(store: StorePath, encoder_id: str, *, weights_sha256: str | None = None) -> Features:
    """Features of one encoder, all checked: shapes, finite values, corners inside the slide, and the hash of both.

    Args:
        weights_sha256: of the encoder's weights; None: any.

    Raises:
        UnreadableError: missing, damaged, or not as they were written.
        WrongSlideError: they are another slide's, another encoder's, or were made with other weights.
    """
    stored = open_features(store, encoder_id, weights_sha256=weights_sha256)
    path = layer_path(store, FEATURES, encoder_id, what="encoder")
    values_nd, xy0_n2 = stored.read_rows(slice(None)), stored.xy0_n2
    try:
        check_values(values_nd, xy0_n2)
    except ValueError as error:
        raise _unreadable(path, str(error)) from error
    if values_sha256(values_nd, xy0_n2) != stored.attributes["values_sha256"]:
        raise _unreadable(path, f"the SHA-256 of {counted(stored.num_tiles, 'tile')} differs from the stated one")
    return Features(encoder_id, values_nd, xy0_n2, stored.side_px0, stored.stride_px0, stored.attributes)


def _check_arrays(values: PlainArray, corners: PlainArray) -> None:
    kinds = values.dtype.name, corners.dtype.name
    if kinds != ("float16", "int32") or corners.shape != (values.shape[0], 2) or len(values.shape) != 2:
        raise ValueError(f"{kinds[0]} values {values.shape} with {kinds[1]} corners {corners.shape}")
    if values.chunk_shape[1] != values.shape[1]:
        raise ValueError(f"chunks of {values.chunk_shape} that split the features of a tile")


def _check_belongs(path: StorePath, stated: FeatureMetadata, source_sha256: str, weights_sha256: str | None) -> None:
    """Raises WrongSlideError: the features are another slide's, another encoder's, or made with other weights."""
    made_from = stated.made_from.source_sha256
    why = stated.foreign_encoder(path.name, weights_sha256)
    if made_from != source_sha256:
        why = f"holds features of the slide with SHA-256 {made_from:.12}…, not of {source_sha256:.12}…"
    if why:
        raise WrongSlideError(f"{path}: {why}. They were copied, renamed or edited. {MAKE_AGAIN}")


def _unreadable(path: StorePath, why: str) -> UnreadableError:
    return UnreadableError(
        f"{path}: no readable features ({why.rstrip('.')}). The slide has: "
        f"{', '.join(list_features(path.parents[1])) or 'none'}. Make them again with `gemslide embed` or `gemslide "
        "features import`."
    )
