"""Fast reads of a slide store: a slide's levels, squares at a requested size, and the root's metadata."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from pipeline.box import Box, check_region
from pipeline.codecs.types import Pixels
from pipeline.grid import FINER_THAN_SCAN
from pipeline.places.byte_source import results_of
from pipeline.places.object_path import StorePath, place_of
from pipeline.project import writable
from pipeline.store.format.inside import INGEST_AGAIN
from pipeline.store.format.layout import IMAGE, TISSUE
from pipeline.store.format.metadata import read_json
from pipeline.store.format.root import open_root
from pipeline.store.links.source import open_link
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.open_array import open_array
from pipeline.store.reading.resample import area_mean
from pipeline.store.reading.threads import parallel_for
from pipeline.units import chosen_plane
from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.tile_read import TileRead

HALF_A_PIXEL = 0.5
"""Shift of an image's last pixel by resampling, below which a level's pixels are used as they are."""

MAX_FINEST_SIDE_PX = 2**14
"""Level-0 pixels along a tile that is read from the finest level: it takes 800 MB."""

MAX_TAKEN_PX = 2**24
"""Pixels of a level held at a time while they are averaged: 50 MB."""


@dataclass(frozen=True)
class LevelArray:
    """One level of the image, finest is 0."""

    level: int
    array: ArrayReader
    downsample: float

    @property
    def width_px(self) -> int:
        return self.array.spec.width_px

    @property
    def height_px(self) -> int:
        return self.array.spec.height_px

    @property
    def chunk_px(self) -> int:
        return self.array.spec.chunk_px

    @property
    def rows(self) -> int:
        return self.array.spec.rows

    @property
    def columns(self) -> int:
        return self.array.spec.columns

    @property
    def codec(self) -> str:
        return self.array.spec.codec


class StoreReader:
    """Reads one slide store, in a folder or a bucket. Cheap to open, safe in threads and in spawned or forked workers.

    Workers that are to read from a bucket must not be forked from a process that has read from one.

    Positions of chunks are read once per shard and kept; a pickled copy opens the store again.

    Args:
        plane_um: height of the focal plane that is read, of a stack; None: the default one.

    Raises:
        BadRecipeError: the slide has no such plane.
        UnreadableError: no store there, or its metadata is inconsistent.
        WrongSlideError: its folder is named after another slide.
        SourceGoneError, ChangedSourceError, OutsideFoldersError: of a linked store, its slide's file.
    """

    def __init__(self, path: StorePath | str, plane_um: float | None = None) -> None:
        self.path = place_of(path)
        attributes, self._state = open_root(self.path)
        self.attributes = attributes
        self.slide_id, self.mpp0 = attributes.slide_id, attributes.mpp0
        self.icc = _icc(attributes.icc, self.path)
        self.plane = chosen_plane(attributes.planes_um, plane_um, self.slide_id)
        """Number of the focal plane that is read, lowest first; 0 of a slide with a single one."""
        link = open_link(self.path, attributes.link.id) if attributes.link else None
        paths = (self.path / IMAGE / level.path for level in attributes.levels)
        calls = (partial(open_array, path, link, self._state, self.plane) for path in paths)
        arrays = zip(attributes.levels, results_of(self.path, calls), strict=True)
        self.levels = tuple(LevelArray(i, array, level.downsample) for i, (level, array) in enumerate(arrays))
        num_planes = None if attributes.planes_um is None else len(attributes.planes_um)
        if any(level.array.spec.planes != num_planes for level in self.levels):
            raise UnreadableError(f"{self.path}: its levels have other focal planes than the root says. {INGEST_AGAIN}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (StoreReader, (self.path, self.plane_um))

    @property
    def plane_um(self) -> float | None:
        """Height of the focal plane that is read; None of a slide with a single one."""
        planes_um = self.attributes.planes_um
        return None if planes_um is None else planes_um[self.plane]

    def planes(self) -> Iterator[StoreReader]:
        """The slide at each of its focal planes, lowest first."""
        for plane_um in self.attributes.planes_um or (None,):
            yield StoreReader(self.path, plane_um)

    @property
    def folder(self) -> Path:
        """The store's folder, to write into. Raises ReadOnlyStoreError: it is in a bucket."""
        return writable(self.path)

    @property
    def source_sha256(self) -> str:
        """Hash of the slide's file, which everything that is made from the slide states.

        Raises:
            UnverifiedLinkError: the store is linked to a file with which it has not been compared.
        """
        return self.attributes.source_sha256

    @property
    def size_wh_px0(self) -> tuple[int, int]:
        return self.levels[0].width_px, self.levels[0].height_px

    def associated(self) -> dict[str, ArrayReader]:
        """Arrays of the store's further series by name; ingest keeps none unless asked to.

        Raises:
            UnreadableError: one is missing or damaged.
        """
        names = enumerate(self.attributes.associated, start=1)
        return {name: open_array(self.path / str(series) / "0", None, self._state) for series, name in names}

    def chunk(self, level: int, row: int, column: int) -> bytes | None:
        """A chunk's stream, checked; see `ArrayReader.chunk`.

        Raises:
            IndexError: no such level, or outside its grid.
        """
        if not 0 <= level < len(self.levels):
            raise IndexError(f"level {level}: slide {self.slide_id} has levels 0 to {len(self.levels) - 1}")
        return self.levels[level].array.chunk(row, column)

    def read_region(self, level: int, box: Box, *, threads: int = 1) -> Pixels:
        """A box of a level's own pixels, uint8 (box.height_px, box.width_px, 3); white outside the slide.

        Args:
            threads: chunks decoded at a time; 1 in a worker of a DataLoader.

        Raises:
            UnreadableError: no such level, or a size below zero.
        """
        check_region(level, len(self.levels), box, f"slide {self.slide_id}")
        return self.levels[level].array.read_region(box, threads=threads)

    def read_regions(
        self, level: int, corners_xy: Sequence[tuple[int, int]], width_px: int, height_px: int, *, threads: int = 1
    ) -> Pixels:
        """Many regions of one size, uint8 (regions, height_px, width_px, 3).

        Args:
            corners_xy: top left corners in the level's own pixels.
            threads: regions read at a time.

        Raises:
            UnreadableError: no such level, or a size below zero.
        """
        check_region(level, len(self.levels), Box(0, 0, width_px, height_px), f"slide {self.slide_id}")
        batch = np.empty((len(corners_xy), height_px, width_px, 3), np.uint8)
        array = self.levels[level].array

        def read(index: int) -> None:
            x_px, y_px = corners_xy[index]
            array.read_region(Box(int(x_px), int(y_px), width_px, height_px), out=batch[index])

        parallel_for(read, ((index,) for index in range(len(corners_xy))), threads)
        return batch

    def read_at_mpp(
        self, x_px0: float, y_px0: float, width_px: int, height_px: int, mpp: float, *, threads: int = 1
    ) -> Pixels:
        """A rectangle of the slide at any resolution, area-averaged from the next finer level; white outside.

        At a level's own mpp, with the corner on one of its pixels, these are the stored pixels.

        Args:
            x_px0, y_px0: top left corner in level-0 pixels; need not be whole.
            width_px, height_px: size of the result, uint8 (height_px, width_px, 3), with pixels of `mpp` microns.
            threads: chunks decoded at a time.

        Raises:
            BadRecipeError: finer than the slide was scanned.
            UnreadableError: a size below zero.
        """
        check_region(0, len(self.levels), Box(0, 0, width_px, height_px), f"slide {self.slide_id}")
        if mpp < self.mpp0 * FINER_THAN_SCAN:
            raise BadRecipeError(
                f"slide {self.slide_id}: pixels of {mpp} µm from a scan at {self.mpp0} µm/px would invent detail. "
                f"Ask for mpp ≥ {self.mpp0}."
            )
        level = self.level_for_downsample(mpp / self.mpp0)
        downsample = self.levels[level].downsample
        scale = mpp / (self.mpp0 * downsample)
        if abs(scale - 1) * max(width_px, height_px) < HALF_A_PIXEL:
            scale = 1.0
        left, top = _nearly_whole(x_px0 / downsample), _nearly_whole(y_px0 / downsample)
        x_px, past_x = math.floor(left), math.ceil(left + scale * width_px)
        result = np.empty((height_px, width_px, 3), np.uint8)
        band_px = max(1, int(MAX_TAKEN_PX / (scale * max(1, past_x - x_px))))
        for row in range(0, height_px, band_px):
            rows = min(band_px, height_px - row)
            start = top + scale * row
            y_px, past_y = math.floor(start), math.ceil(start + scale * rows)
            region = self.read_region(level, Box(x_px, y_px, past_x - x_px, past_y - y_px), threads=threads)
            result[row : row + rows] = area_mean(region, left - x_px, start - y_px, scale, (width_px, rows))
        return result

    def read_square(self, level: int, x_px0: int, y_px0: int, side_px0: int, out_px: int) -> Pixels:
        """A square of the slide at a requested size, read from `level` and area-averaged.

        Args:
            x_px0, y_px0, side_px0: the square in level-0 pixels.
            out_px: side of the result; if it equals that in level pixels, the stored pixels are returned.

        Raises:
            UnreadableError: no such level, or a size below zero.
        """
        check_region(level, len(self.levels), Box(0, 0, side_px0, side_px0), f"slide {self.slide_id}")
        downsample = self.levels[level].downsample
        x_px, y_px = round(x_px0 / downsample), round(y_px0 / downsample)
        side_px = square_side_px(side_px0, downsample)
        region = self.read_region(level, Box(x_px, y_px, side_px, side_px))
        return region if side_px == out_px else resize_square(region, out_px)

    def level_for_downsample(self, downsample: float) -> int:
        """The coarsest level that is not coarser than requested (1 % of rounding allowed)."""
        fine_enough = [array.level for array in self.levels if array.downsample <= downsample * 1.01]
        return fine_enough[-1] if fine_enough else 0

    def tile_level(self, read: TileRead, *, mpp: float, side_px0: int) -> int:
        """Index of the level that tiles of `mpp` µm/px are read from.

        Args:
            side_px0: of a tile, in level-0 pixels.

        Raises:
            BadRecipeError: tiles are read from the finest level, and one has too many pixels there.
        """
        if read == "level":
            return self.level_for_downsample(mpp / self.mpp0)
        if side_px0 > MAX_FINEST_SIDE_PX:
            raise BadRecipeError(
                f"slide {self.slide_id}: a tile covers {side_px0} × {side_px0} px of the finest level; with read = "
                f'"finest" it may be {MAX_FINEST_SIDE_PX} × {MAX_FINEST_SIDE_PX} px. Use smaller tiles, or '
                'read = "level" in the [tile] section (and a model trained on such tiles).'
            )
        return 0


def square_side_px(side_px0: int, downsample: float) -> int:
    """Side of a square in a level's pixels."""
    return max(1, round(side_px0 / downsample))


def resize_square(pixels: Pixels, out_px: int, *, out: Pixels | None = None) -> Pixels:
    """A square resized: averaged if it becomes smaller, interpolated if larger.

    Args:
        out: memory to fill instead of new memory, uint8 (out_px, out_px, 3).
    """
    kind = cv2.INTER_AREA if len(pixels) > out_px else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(pixels, (out_px, out_px), dst=out, interpolation=kind), np.uint8)


def is_store(path: StorePath) -> bool:
    """Whether a folder is meant to be a slide store, whole or damaged, and not the OME-Zarr of another program."""
    try:
        attributes = read_json(path / "zarr.json").get("attributes")
    except OSError:
        return False
    except ValueError:  # damaged: its neighbours tell
        return (path / TISSUE).is_dir()
    return isinstance(attributes, dict) and "gemslide" in attributes


def _nearly_whole(position_px: float) -> float:
    """The position, rounded if nearly whole: a thousandth of a pixel shifts no grey value by a half."""
    whole = round(position_px)
    return float(whole) if abs(position_px - whole) < 1e-3 else position_px


def _icc(text: str | None, store: StorePath) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if text else None
    except ValueError as error:
        raise UnreadableError(f"{store}: its ICC profile is damaged ({error}). Ingest the slide again.") from error
