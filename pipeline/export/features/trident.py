"""TRIDENT's feature files: HDF5 with `features` and `coords`, whose attributes state how large the tiles are.

As its documentation describes them: `features` float32 (tiles, features), `coords` int64 (tiles, 2) in level-0 pixels,
and patch_size_level0 = patch_size · level0_magnification / target_magnification. Files of its forerunners hold a batch
of one, (1, tiles, features).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.errors import BadManifestError, WrongSlideError
from pipeline.export.common.target import check_free
from pipeline.export.features.foreign import ForeignFile, Wanted, read_foreign
from pipeline.export.features.hdf5 import new_hdf5
from pipeline.export.features.tile_size import ForeignFeatures, TileSize, agreed_size, whole_corners
from pipeline.project import STORE_SUFFIX
from pipeline.store.layers.features import Features
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import BadRecipeError
from training.foundation.words.names import is_name

MAGNIFICATION_UM = 10.0
"""Microns per pixel at a magnification of 1: 40 × is 0.25 µm/px."""
_SLIDE = ("level0_width", "level0_height")
_SIZES = ("patch_size", "patch_size_level0", "target_magnification", "level0_magnification")
_WANTED = Wanted(
    ("features", "coords"),
    dict.fromkeys((*_SLIDE, *_SIZES, "overlap"), "coords"),
    {"encoder": "features", "name": "coords"},
)


def write_trident(folder: Path, reader: StoreReader, features: Features) -> tuple[Path, ...]:
    """Write SLIDE.h5 into a folder. Returns its path.

    `patch_size_level0` and `overlap` are rounded to whole pixels, as TRIDENT's programs expect them.

    Raises:
        BadRecipeError: it exists, or it is not known how many pixels a tile has.
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    path = folder / f"{reader.slide_id}.h5"
    check_free(path, reader.path)
    tile_px = features.tile_px
    if tile_px is None:
        raise BadRecipeError(
            f"features {features.encoder_id} of slide {reader.slide_id}: it is not known how many pixels a tile has, "
            "which TRIDENT's files must state. Import them again with --tile-px."
        )
    side_px0 = features.side_px0
    mpp = features.mpp or side_px0 * reader.mpp0 / tile_px
    width_px0, height_px0 = reader.size_wh_px0
    attributes = {
        "patch_size": tile_px,
        "patch_size_level0": round(side_px0),
        "overlap": round((side_px0 - features.stride_px0) * tile_px / side_px0),
        "level0_width": width_px0,
        "level0_height": height_px0,
        "target_magnification": _magnification(mpp),
        "level0_magnification": _magnification(reader.mpp0),
        "name": reader.slide_id,
    }
    with new_hdf5(path) as file:
        file.create_dataset("features", data=features.values_nd.astype(np.float32))
        file["features"].attrs.update({"encoder": features.encoder_id, "name": reader.slide_id})
        file.create_dataset("coords", data=features.xy0_n2.astype(np.int64))
        file["coords"].attrs.update(attributes)
    return (path,)


def _magnification(mpp: float) -> int | float:
    """The magnification that pixels of this size have, whole if it is."""
    magnification = round(MAGNIFICATION_UM / mpp, 6)
    return int(magnification) if magnification.is_integer() else magnification


def read_trident(path: Path, reader: StoreReader, given: TileSize) -> ForeignFeatures:
    """Features from a file of TRIDENT's, checked against the slide.

    Raises:
        UnreadableError: damaged, or not such a file. DecompressionBombError: it declares more than can be read.
        ImplausibleOutputError: a value is not finite, or too large for half precision.
        BadManifestError: corners that are not whole, outside the slide or twice the same, or numbers that do not fit.
        BadRecipeError: the size of tiles is not known, or contradictory. WrongSlideError: a slide of another size.
    """
    file = read_foreign(path, _WANTED)
    _check_slide(file, reader)
    size = agreed_size(_stated_size(file), given, reader.mpp0, path)
    assert size.side_px0 is not None
    stride_px0 = size.side_px0 - _overlap_px0(file.numbers["overlap"] or 0.0, size, path)
    xy0_n2 = whole_corners(file.xy_n2, reader, path)
    return ForeignFeatures(
        file.values_nd, xy0_n2, size.side_px0, stride_px0, size.tile_px, size.mpp, file.texts["encoder"]
    )


def _check_slide(file: ForeignFile, reader: StoreReader) -> None:
    for name, here in zip(_SLIDE, reader.size_wh_px0, strict=True):
        stated = file.numbers[name]
        if stated not in (None, here):
            raise WrongSlideError(
                f"{file.path}: was made from a slide with {name} {stated:g}; slide {reader.slide_id} has {here}. "
                "Import it into the store of the slide it was made from."
            )
    slide = file.texts["name"]
    if (
        slide
        and slide != reader.slide_id
        and is_name(slide)
        and (reader.path.parent / f"{slide}{STORE_SUFFIX}").is_dir()
    ):
        raise WrongSlideError(
            f"{file.path}: states that it was made from slide {slide}, which this project has, and not from "
            f"{reader.slide_id}. Import it into that slide's store."
        )


def _stated_size(file: ForeignFile) -> TileSize:
    """Raises BadManifestError: the file contradicts itself, or has impossible sizes."""
    numbers = [file.numbers[name] for name in _SIZES]
    if any(number is not None and number <= 0 for number in numbers):
        raise BadManifestError(f"{file.path}: its tiles' {', '.join(_SIZES)} are {numbers}, which cannot be.")
    patch_px, side_px0, target, level0 = numbers
    computed = patch_px * level0 / target if patch_px and level0 and target else None
    if patch_px is not None and not patch_px.is_integer():
        raise BadManifestError(f"{file.path}: its patch_size is {patch_px:g}, not a whole number of pixels.")
    return TileSize(None if patch_px is None else int(patch_px), None, side_px0 or computed)


def _overlap_px0(overlap_px: float, size: TileSize, path: Path) -> float:
    """Level-0 pixels shared by neighbours."""
    if not overlap_px:
        return 0.0
    if size.tile_px is None:
        raise BadRecipeError(f"{path}: its tiles overlap by {overlap_px:g} px. Add --tile-px, their side in pixels.")
    if not 0 < overlap_px < size.tile_px:
        raise BadManifestError(f"{path}: its tiles of {size.tile_px} px overlap by {overlap_px:g} px, which cannot be.")
    assert size.side_px0 is not None
    return round(overlap_px * size.side_px0 / size.tile_px)
