"""Another program's HDF5 file, read in a process of its own.

The HDF5 library can crash on a damaged file, or read it forever: both end that process, within its limits, and are one
error here.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.bounded import BoundedProcesses, Limits
from pipeline.errors import BadAnnotationError
from pipeline.store.layers.feature_checks import FeatureValues
from training.foundation.errors import DecompressionBombError, UnreadableError

_WORK = "pipeline.export.features.hdf5:read_parts"


@dataclass(frozen=True)
class Wanted:
    """What to read of a file. Attributes are named with the data set that has them, or "/" for the file itself."""

    arrays: tuple[str, str]
    """Features and coordinates."""
    numbers: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignFile:
    """The parts of a file that were read; attributes that it does not state are None."""

    path: Path
    values_nd: FeatureValues
    xy_n2: NDArray[np.float64]
    """float64 (tiles, 2), finite, in the file's own unit."""
    numbers: Mapping[str, float | None]
    texts: Mapping[str, str | None]


def limits_for(num_bytes: int) -> Limits:
    """Limits for a file of that size. Compressed features take at most a few times as much memory."""
    mib = 1 << max(num_bytes >> 20, 1).bit_length()
    return Limits(
        seconds=30.0 + mib,
        mib=512 + 8 * mib,
        subject="its data take",
        remedy="It may be damaged: write it again with the program it is from.",
    )


def read_foreign(path: Path, wanted: Wanted, *, limits: Limits | None = None) -> ForeignFile:
    """Read another program's file.

    Args:
        limits: on time and memory; None: for the file's size.

    Raises:
        UnreadableError: missing, not HDF5, damaged, or what is read is not what it must be.
        DecompressionBombError: it declares or takes more than can be read. EmptyTableError: no features.
        ImplausibleOutputError: a value is not finite, or too large for half precision.
        BadManifestError: coordinates of another number of tiles. DiskFullError: no space for temporary files.
    """
    if not path.is_file():
        raise UnreadableError(f"{path}: is not a file.")
    processes = _processes(limits or limits_for(path.stat().st_size))
    with tempfile.TemporaryDirectory(prefix="gemslide-") as folder:
        options = {"path": str(path.absolute()), "folder": folder, **asdict(wanted)}
        try:
            (stated,) = processes.run(_WORK, os.fsencode(path), str(path), **options)
        except BadAnnotationError as error:  # as limits are reported
            raise DecompressionBombError(str(error)) from error
        values_nd, xy_n2 = (np.load(f"{folder}/{name}.npy", allow_pickle=False) for name in ("values", "coordinates"))
    return ForeignFile(path, values_nd, xy_n2, stated["numbers"], stated["texts"])


@cache
def _processes(limits: Limits) -> BoundedProcesses:
    """One process for all files with the same limits; it ends with this one."""
    processes = BoundedProcesses(limits, most=1)
    atexit.register(processes.close)
    return processes
