"""CLAM's feature files: `h5_files/SLIDE.h5`, `pt_files/SLIDE.pt`, and a CSV of slides.

The HDF5 file holds `features` (tiles, features) and `coords` (tiles, 2), level-0 pixels; the other a plain tensor of
the same features. Neither states how large a tile is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pipeline.export.common.target import check_free, new_file
from pipeline.export.features.foreign import Wanted, read_foreign
from pipeline.export.features.hdf5 import new_hdf5
from pipeline.export.features.tile_size import ForeignFeatures, TileSize, agreed_size, whole_corners
from pipeline.store.layers.features import Features
from pipeline.store.reading.reader import StoreReader

CSV_NAME = "slides.csv"


def write_clam(folder: Path, reader: StoreReader, features: Features) -> tuple[Path, ...]:
    """Write a slide's two files below a folder, both or none. Returns their paths.

    Raises:
        BadRecipeError: one of them exists.
        DiskFullError: no space, or not writable. LockedError: another process is writing the same files.
    """
    h5_path, pt_path = folder / f"h5_files/{reader.slide_id}.h5", folder / f"pt_files/{reader.slide_id}.pt"
    for path in (h5_path, pt_path):
        check_free(path, reader.path)
    values_nd = features.values_nd.astype(np.float32)
    with new_hdf5(h5_path) as file:
        file.create_dataset("features", data=values_nd)
        file.create_dataset("coords", data=features.xy0_n2)
    try:
        _write_tensor(pt_path, values_nd)
    except BaseException:
        h5_path.unlink()
        raise
    return h5_path, pt_path


def _write_tensor(path: Path, values_nd: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    import torch  # slow to import

    with new_file(path) as stream:
        torch.save(torch.from_numpy(values_nd), stream)


def write_slide_table(path: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write CLAM's list of slides.

    Args:
        rows: (case_id, slide_id, label) of each slide.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("case_id", "slide_id", "label"), *rows])
    with new_file(path) as stream:
        stream.write(text.getvalue().encode())


def read_clam(path: Path, reader: StoreReader, given: TileSize) -> ForeignFeatures:
    """Features from an HDF5 file of CLAM's, checked against the slide.

    Raises:
        UnreadableError: damaged, or not such a file. DecompressionBombError: it declares more than can be read.
        ImplausibleOutputError: a value is not finite, or too large for half precision.
        BadManifestError: corners that are not whole, outside the slide or twice the same, or too few or many.
        BadRecipeError: the size of tiles is not given.
    """
    file = read_foreign(path, Wanted(("features", "coords")))
    size = agreed_size(TileSize(), given, reader.mpp0, path)
    assert size.side_px0 is not None
    xy0_n2 = whole_corners(file.xy_n2, reader, path)
    return ForeignFeatures(file.values_nd, xy0_n2, size.side_px0, size.side_px0, size.tile_px, size.mpp)
