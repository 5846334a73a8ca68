"""Features in a store of which only the rows that are needed are read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.store.format.plain_array import PlainArray
from pipeline.store.layers.feature_checks import Corners, FeatureValues, check_corners
from training.foundation.errors import UnreadableError

MAKE_AGAIN = "Delete the folder, then make them again with `gemslide embed` or `gemslide features import`."


@dataclass(frozen=True)
class StoredFeatures:
    """Features in a store, as described by their metadata; values are read as they are needed. Can be pickled."""

    encoder_id: str
    side_px0: float
    stride_px0: float
    attributes: dict[str, Any]
    size_wh_px0: tuple[int, int]
    """Of the slide."""
    values: PlainArray
    corners: PlainArray

    @property
    def num_tiles(self) -> int:
        return self.values.shape[0]

    @property
    def dims(self) -> int:
        """Features of each tile."""
        return self.values.shape[1]

    @cached_property
    def xy0_n2(self) -> Corners:
        """The tiles' top left corners, int32 (tiles, 2), level-0 pixels.

        Raises:
            UnreadableError: damaged, outside the slide, or twice the same.
        """
        xy0_n2 = self.corners.read()
        try:
            check_corners(xy0_n2, self.size_wh_px0)
        except ValueError as error:
            raise UnreadableError(f"{self.corners.path}: {error}. {MAKE_AGAIN}") from error
        return xy0_n2

    def read_rows(self, rows: slice | NDArray[np.integer[Any]]) -> FeatureValues:
        """Features of some tiles, float16 (rows, dims). Only their chunks are read, and checked by their CRC-32C.

        Args:
            rows: numbers of tiles, in any order, as NumPy's indexing takes them.

        Raises:
            UnreadableError: a chunk is missing or damaged. IndexError: no such tile.
        """
        indices = np.arange(self.num_tiles)[rows]
        chunk_tiles = self.values.chunk_shape[0]
        chunks = indices // chunk_tiles
        order = np.argsort(chunks, kind="stable")
        numbers, starts = np.unique(chunks[order], return_index=True)
        values_nd = np.empty((len(indices), self.dims), np.float16)
        # Without rows there is no chunk, but one empty part.
        for number, targets in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
            sources = indices[targets] - number * chunk_tiles
            values_nd[_as_slice(targets)] = self._chunk(number)[_as_slice(sources)]
        return values_nd

    def _chunk(self, number: int) -> FeatureValues:
        chunk = self.values.chunk((number, 0))
        if chunk is None:
            raise UnreadableError(f"{self.values.chunk_path((number, 0))}: is missing. {MAKE_AGAIN}")
        return chunk


def _as_slice(indices: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Indices as a slice, which copies faster, if they count up one by one."""
    first, count = int(indices[0]), len(indices)
    return slice(first, first + count) if (np.diff(indices) == 1).all() else indices
