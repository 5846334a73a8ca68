"""STAMP's feature files: HDF5 with `feats` and `coords` in micrometres, and attributes that state the tiles' size."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.errors import BadManifestError
from pipeline.export.common.target import check_free
from pipeline.export.features.foreign import ForeignFile, Wanted, read_foreign
from pipeline.export.features.hdf5 import new_hdf5
from pipeline.export.features.tile_size import ForeignFeatures, TileSize, agreed_size, whole_corners
from pipeline.store.layers.features import Features
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError

_WANTED = Wanted(
    ("feats", "coords"),
    dict.fromkeys(("tile_size_um", "tile_size", "tile_size_px"), "/"),
    dict.fromkeys(("feat_type", "unit", "extractor"), "/"),
)


def write_stamp(folder: Path, reader: StoreReader, features: Features) -> tuple[Path, ...]:
    """Write SLIDE.h5 into a folder. Returns its path.

    Raises:
        BadRecipeError: it exists.
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    path = folder / f"{reader.slide_id}.h5"
    check_free(path, reader.path)
    with new_hdf5(path) as file:
        file.create_dataset("feats", data=features.values_nd)
        file.create_dataset("coords", data=(features.xy0_n2 * reader.mpp0).astype(np.float32))
        file.attrs.update(
            {
                "extractor": features.encoder_id,
                "unit": "um",
                "tile_size_um": features.side_px0 * reader.mpp0,
                "feat_type": "tile",
            }
        )
        if features.tile_px is not None:
            file.attrs["tile_size_px"] = features.tile_px
    return (path,)


def read_stamp(path: Path, reader: StoreReader, given: TileSize) -> ForeignFeatures:
    """Features from a file of STAMP's from version 2 on, checked against the slide; corners to the nearest pixel.

    Raises:
        UnreadableError: damaged, or not such a file. DecompressionBombError: it declares more than can be read.
        ImplausibleOutputError: a value is not finite, or too large for half precision.
        BadManifestError: corners outside the slide or twice the same, or numbers that do not fit.
        BadRecipeError: the size of tiles is not known, or contradictory.
    """
    file = read_foreign(path, _WANTED)
    _check_kind(file)
    size = agreed_size(_stated_size(file, reader.mpp0), given, reader.mpp0, path)
    side_px0 = size.side_px0
    assert side_px0 is not None
    xy0_n2 = whole_corners(np.rint(file.xy_n2 / reader.mpp0), reader, path)
    return ForeignFeatures(file.values_nd, xy0_n2, side_px0, side_px0, size.tile_px, size.mpp, file.texts["extractor"])


def _check_kind(file: ForeignFile) -> None:
    """Raises UnreadableError: features of slides or patients, or coordinates in another unit."""
    kind, unit = file.texts["feat_type"], file.texts["unit"]
    if kind not in (None, "tile"):
        raise UnreadableError(f"{file.path}: holds features of a {kind!r:.40}; those of tiles are imported.")
    if unit != "um":
        raise UnreadableError(
            f"{file.path}: does not state that its coordinates are in micrometres (`unit` is {unit!r:.40}). Files of "
            "STAMP before version 2 counted otherwise: extract the features again with a newer one."
        )


def _stated_size(file: ForeignFile, mpp0: float) -> TileSize:
    """Raises BadManifestError: an impossible size."""
    side_um = file.numbers["tile_size_um"] or file.numbers["tile_size"]
    tile_px = file.numbers["tile_size_px"]
    if (side_um or 1) <= 0 or (tile_px or 1) <= 0 or not (tile_px or 0.0).is_integer():
        raise BadManifestError(f"{file.path}: tiles of {side_um} µm and {tile_px} px cannot be.")
    return TileSize(int(tile_px) if tile_px else None, None, side_um / mpp0 if side_um else None)
