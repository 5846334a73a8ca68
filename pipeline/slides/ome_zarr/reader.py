"""An existing OME-Zarr (NGFF 0.4 on zarr v2, 0.5 on zarr v3) as a slide, read chunk by chunk through zarr."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import zarr

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import (
    AmbiguousSeriesError,
    CorruptTileError,
    DecompressionBombError,
    NotBrightfieldRgbError,
    UnreadableError,
)
from pipeline.slides.limits import MAX_UNPACK_RATIO, SMALL_CLAIM_BYTES
from pipeline.slides.ome_zarr.metadata import Axes, Multiscale, associated_name, ome_attributes, read_multiscale
from pipeline.slides.slide import EncodedLevel, LevelSize, SlideInfo, level_size, paste
from pipeline.units import is_plausible_mpp

ZARR_ERRORS = (
    ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, struct.error, zlib.error, EOFError,
    OSError, RuntimeError, MemoryError, NotImplementedError,
)  # fmt: skip
"""What zarr and its codecs raise on folders that lie about themselves."""

_MAX_CHUNK_BYTES = 256 * 2**20
_MAX_ASSOCIATED_BYTES = 256 * 2**20
_MAX_XML_BYTES = 16 * 2**20


class OmeZarrSlide:
    """One image of an OME-Zarr folder. All its levels take the decode route.

    Args:
        path: the folder: an image, or a container of several as bioformats2raw writes it.
        series: which image of a container; by default its first.
    """

    def __init__(self, path: Path, series: str | None = None) -> None:
        self._path, self._name = path, path.name
        self.files = tuple(sorted(file for file in path.rglob("*") if file.is_file()))
        self.openslide_file: Path | None = None
        self._bytes = sum(file.stat().st_size for file in self.files)
        try:
            self._root = zarr.open_group(path, mode="r", use_consolidated=False)
            attributes = dict(self._root.attrs)
        except ZARR_ERRORS as error:
            raise self._unreadable(error) from error
        if "gemslide" in attributes:
            raise UnreadableError(f"{self._name}: is a gemslide store already. Open it as it is, or name its source.")
        self._images = self._find_images(attributes)
        self._chosen = self._choose(series)
        if self._chosen:  # two images of one container are two slides
            self.files = tuple(file for file in self.files if (path / self._chosen) in file.parents)
        self._multiscale = self._read_image(self._chosen)
        self._levels = self._read_levels()
        self.info = self._read_info()

    # --- what is in the folder -------------------------------------------------------------------

    def _find_images(self, attributes: Mapping[str, Any]) -> list[str]:
        """Paths of the images, "" for the folder itself."""
        ome = ome_attributes(attributes)
        if "multiscales" in ome:
            return [""]
        if "plate" in ome or "well" in ome:
            raise UnreadableError(f"{self._name}: is a plate of wells, not a slide. Name one of its images.")
        if "bioformats2raw.layout" not in ome:
            raise UnreadableError(
                f"{self._name}: is a zarr folder without OME-Zarr metadata (no multiscales). Name the image's folder."
            )
        listed = ome_attributes(self._attributes("OME")).get("series") if "OME" in self._root else None
        if listed is None:
            listed = sorted((key for key in self._root if re.fullmatch("[0-9]+", key)), key=int)
        if not isinstance(listed, list) or not listed:
            raise UnreadableError(f"{self._name}: is a container without images. Convert the slide again.")
        return [str(path) for path in listed]

    def _choose(self, series: str | None) -> str:
        if series is None:
            return self._images[0]
        if series in self._images and series:
            return series
        if self._images == [""]:
            raise UnreadableError(f"{self._name}: has one image, which has no name: leave out --series {series!r}.")
        raise AmbiguousSeriesError(f"{self._name}: has no series {series!r}. It has {', '.join(self._images)}.")

    def _attributes(self, path: str) -> Mapping[str, Any]:
        try:
            return dict(self._root[path].attrs) if path else dict(self._root.attrs)
        except ZARR_ERRORS as error:
            raise self._unreadable(error) from error

    def _read_image(self, path: str) -> Multiscale:
        return read_multiscale(self._attributes(path), f"{self._name}/{path}" if path else self._name)

    def _read_levels(self) -> list[_Level]:
        """The levels that are one image at falling size; the rest is built again."""
        finest = self._open_level(0)
        if finest.width_px * finest.height_px * 3 > max(SMALL_CLAIM_BYTES, MAX_UNPACK_RATIO * self._bytes):
            raise DecompressionBombError(
                f"{self._name}: claims {finest.width_px}×{finest.height_px} px in {self._bytes} bytes: more than "
                f"{MAX_UNPACK_RATIO} to 1. Its metadata is damaged."
            )
        levels = [finest]
        for index in range(1, len(self._multiscale.datasets)):
            level = self._open_level(index)
            if level.width_px < levels[-1].width_px and self._is_reduced_copy(index, level, finest):
                levels.append(level)
        return levels

    def _open_level(self, index: int) -> _Level:
        path = "/".join(part for part in (self._chosen, self._multiscale.datasets[index].path) if part)
        try:
            array = self._root[path]
        except ZARR_ERRORS as error:
            raise self._unreadable(error) from error
        if not isinstance(array, zarr.Array):
            raise UnreadableError(f"{self._name}: {path} is no array. The OME-Zarr is incomplete; copy it again.")
        return _Level(array, self._multiscale.axes, self._name)

    def _is_reduced_copy(self, index: int, level: _Level, finest: _Level) -> bool:
        """Whether a level shows the same image: the same shape, from the same corner, by half a pixel or so."""
        downsample = finest.width_px / level.width_px
        if abs(finest.height_px / downsample - level.height_px) > 1 + max(1.0, level.height_px / level.width_px):
            return False
        first, own = self._multiscale.datasets[0], self._multiscale.datasets[index]
        axes = (self._multiscale.axes.y, self._multiscale.axes.x)
        return all(abs(own.translation[axis] - first.translation[axis]) <= abs(own.scale[axis]) for axis in axes)

    # --- what it says of itself ------------------------------------------------------------------

    def _read_info(self) -> SlideInfo:
        multiscale, finest = self._multiscale, self._levels[0]
        x, y = (multiscale.step_um(multiscale.datasets[0], axis) for axis in (multiscale.axes.x, multiscale.axes.y))
        looked_in = f"OME-Zarr scale with its axes' units: {x} × {y} µm/px (None: an axis without unit)"
        is_known = x is not None and y is not None and is_plausible_mpp(x) and is_plausible_mpp(y)
        return SlideInfo(
            format="ome-zarr",
            levels=tuple(level.size(finest) for level in self._levels),
            mpp_xy=(x, y) if is_known and x is not None and y is not None else None,
            mpp_looked_in=looked_in,
            objective_power=self._objective_power(),
            associated=tuple(self._associated),
        )

    def _objective_power(self) -> float | None:
        """Nominal magnification from the OME-XML that bioformats2raw puts beside the images."""
        path = self._path / "OME" / "METADATA.ome.xml"
        try:
            if not path.is_file() or path.stat().st_size > _MAX_XML_BYTES:
                return None
            objective = ElementTree.parse(path).getroot().find(".//{*}Objective")
            power = float(objective.attrib["NominalMagnification"]) if objective is not None else 0.0
        except (ElementTree.ParseError, KeyError, ValueError, OSError):
            return None
        return power if 0 < power < 1000 else None

    @cached_property
    def _associated(self) -> dict[str, str]:
        """Label, macro and thumbnail among a container's other images, by their names: paths."""
        found: dict[str, str] = {}
        for path in self._images:
            if path == self._chosen:
                continue
            try:
                name = associated_name(self._read_image(path))
            except (UnreadableError, NotBrightfieldRgbError):
                continue
            if name is not None:
                found.setdefault(name, path)
        return found

    # --- pixels ----------------------------------------------------------------------------------

    def read_region(self, level: int, box: Box) -> Pixels:
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | str:
        return "chunks of an OME-Zarr are decoded and stored again"

    def associated_image(self, name: str) -> Pixels:
        path = self._associated[name]
        multiscale = self._read_image(path)
        array = self._root[f"{path}/{multiscale.datasets[0].path}"]
        if not isinstance(array, zarr.Array):
            raise UnreadableError(f"{self._name}: its {name} image is no array. Copy the OME-Zarr again.")
        level = _Level(array, multiscale.axes, self._name)
        if level.width_px * level.height_px * 3 > _MAX_ASSOCIATED_BYTES:
            raise DecompressionBombError(
                f"{self._name}: its {name} image claims {level.width_px}×{level.height_px} px."
            )
        return level.read_region(Box(0, 0, level.width_px, level.height_px))

    def _unreadable(self, error: Exception) -> UnreadableError:
        return UnreadableError(
            f"{self._name}: zarr cannot read its structure ({type(error).__name__}: {error}). "
            "The OME-Zarr is damaged or incomplete; copy it again."
        )

    def __enter__(self) -> OmeZarrSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._root.store.close()


class _Level:
    """One array as a level: RGB in whatever order its axes stand."""

    def __init__(self, array: zarr.Array[Any], axes: Axes, name: str) -> None:
        self._array, self._axes, self._name = array, axes, name
        if len(array.shape) != len(axes.names):
            raise UnreadableError(f"{name}: an array of {len(array.shape)} dimensions for the axes {axes.names}.")
        self.width_px, self.height_px = array.shape[axes.x], array.shape[axes.y]
        self._check_is_rgb()
        chunk_bytes = int(np.prod(array.chunks, dtype=np.float64))
        if chunk_bytes > _MAX_CHUNK_BYTES:
            raise DecompressionBombError(
                f"{name}: chunks of {array.chunks}, {chunk_bytes >> 20} MiB each; at most {_MAX_CHUNK_BYTES >> 20} "
                "MiB are read at once. Convert it with smaller chunks."
            )

    def _check_is_rgb(self) -> None:
        array, axes = self._array, self._axes
        shape = dict(zip(axes.names, array.shape, strict=True))
        channels = shape.pop("c", 1)
        height, width = shape.pop("y"), shape.pop("x")
        if channels != 3 or array.dtype != np.uint8 or any(length != 1 for length in shape.values()):
            others = "".join(f", {length} along {name}" for name, length in shape.items())
            raise NotBrightfieldRgbError(
                f"{self._name}: holds {channels} channels of {array.dtype}{others}. Only 8-bit brightfield RGB slides "
                "are read (3 channels, one focal plane, one time). Export it as 8-bit RGB."
            )
        if height < 1 or width < 1:
            raise UnreadableError(f"{self._name}: claims {width}×{height} px. The OME-Zarr is damaged.")

    def size(self, finest: _Level) -> LevelSize:
        chunk_y, chunk_x = self._array.chunks[self._axes.y], self._array.chunks[self._axes.x]
        return level_size(
            self.width_px, self.height_px, finest.width_px, finest.height_px,
            tile_px=chunk_x if chunk_x == chunk_y else None,
        )  # fmt: skip

    def read_region(self, box: Box) -> Pixels:
        region = np.full((box.height_px, box.width_px, 3), 255, np.uint8)
        inside = box.within(self.width_px, self.height_px)
        if not inside.is_empty:
            paste(region, self._read(inside), inside.x_px - box.x_px, inside.y_px - box.y_px)
        return region

    def _read(self, box: Box) -> Pixels:
        axes = self._axes
        parts = {"x": slice(box.x_px, box.right_px), "y": slice(box.y_px, box.bottom_px), "c": slice(None)}
        try:
            found = np.asarray(self._array[tuple(parts.get(name, 0) for name in axes.names)])
        except ZARR_ERRORS as error:
            raise CorruptTileError(
                f"{self._name}: the region at x={box.x_px}, y={box.y_px} of the {self.width_px}×{self.height_px} px "
                f"level cannot be decoded: {type(error).__name__}: {error}. "
                "A chunk is damaged; copy or convert it again."
            ) from error
        kept = [name for name in axes.names if name in parts]
        return found.transpose([kept.index(name) for name in ("y", "x", "c")])
