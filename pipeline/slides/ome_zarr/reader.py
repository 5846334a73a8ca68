"""An existing OME-Zarr (NGFF 0.4 on zarr v2, 0.5 on zarr v3) as a slide, read chunk by chunk through zarr."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import AmbiguousSeriesError, NotBrightfieldRgbError, UnreadableError
from pipeline.slides.damage import DamagedFileError
from pipeline.slides.ome_zarr.library import ZarrFolder
from pipeline.slides.ome_zarr.metadata import (
    Multiscale,
    associated_name,
    mpp_of,
    objective_power_of,
    ome_attributes,
    read_multiscale,
)
from pipeline.slides.ome_zarr.pixels import OmeZarrLevel
from pipeline.slides.ome_zarr.validate import check_associated_claim, check_claim, starts_at_same_corner
from pipeline.slides.pyramid import is_reduced_copy
from pipeline.slides.slide import EncodedLevel, NotCopied, SlideInfo


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
            self._folder = ZarrFolder(path)
            self._read_structure(series)
        except DamagedFileError as error:
            raise UnreadableError(
                f"{self._name}: zarr cannot read its structure ({error}). "
                "The OME-Zarr is damaged or incomplete; copy it again."
            ) from error

    def _read_structure(self, series: str | None) -> None:
        attributes = self._folder.attributes()
        if "gemslide" in attributes:
            raise UnreadableError(f"{self._name}: is a gemslide store already. Open it as it is, or name its source.")
        self._images = self._find_images(attributes)
        self._chosen = self._choose(series)
        if self._chosen:  # two images of one container are two slides
            self.files = tuple(file for file in self.files if (self._path / self._chosen) in file.parents)
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
        names = self._folder.names()
        listed = ome_attributes(self._folder.attributes("OME")).get("series") if "OME" in names else None
        if listed is None:
            listed = sorted((name for name in names if re.fullmatch("[0-9]{1,9}", name)), key=int)
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

    def _read_image(self, path: str) -> Multiscale:
        return read_multiscale(self._folder.attributes(path), f"{self._name}/{path}" if path else self._name)

    def _read_levels(self) -> list[OmeZarrLevel]:
        """The levels that are one image at falling size; the rest is built again."""
        finest = self._open_level(self._chosen, self._multiscale, 0)
        check_claim(finest.width_px, finest.height_px, self._bytes, self._name)
        levels = [finest]
        for index in range(1, len(self._multiscale.datasets)):
            level = self._open_level(self._chosen, self._multiscale, index)
            if level.width_px < levels[-1].width_px and self._is_reduced_copy(index, level, finest):
                levels.append(level)
        return levels

    def _open_level(self, image: str, multiscale: Multiscale, index: int) -> OmeZarrLevel:
        path = "/".join(part for part in (image, multiscale.datasets[index].path) if part)
        return OmeZarrLevel(self._folder.array(path), multiscale.axes, self._name)

    def _is_reduced_copy(self, index: int, level: OmeZarrLevel, finest: OmeZarrLevel) -> bool:
        """Whether a level shows the same image: the same shape, from the same corner."""
        is_copy = is_reduced_copy((level.width_px, level.height_px), (finest.width_px, finest.height_px))
        return is_copy and starts_at_same_corner(self._multiscale, index)

    # --- what it says of itself ------------------------------------------------------------------

    def _read_info(self) -> SlideInfo:
        finest = self._levels[0]
        mpp_xy, looked_in = mpp_of(self._multiscale)
        return SlideInfo(
            format="ome-zarr",
            levels=tuple(level.size(finest) for level in self._levels),
            mpp_xy=mpp_xy,
            mpp_looked_in=looked_in,
            objective_power=objective_power_of(self._path),
            associated=tuple(self._associated),
        )

    @cached_property
    def _associated(self) -> dict[str, str]:
        """Label, macro and thumbnail among a container's other images, by their names: paths."""
        found: dict[str, str] = {}
        for path in self._images:
            if path == self._chosen:
                continue
            try:
                name = associated_name(self._read_image(path))
            except (DamagedFileError, UnreadableError, NotBrightfieldRgbError):
                continue
            if name is not None:
                found.setdefault(name, path)
        return found

    # --- pixels ----------------------------------------------------------------------------------

    def read_region(self, level: int, box: Box) -> Pixels:
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        return NotCopied("chunks of an OME-Zarr are decoded and stored again")

    def associated_image(self, name: str) -> Pixels:
        path = self._associated[name]
        try:
            level = self._open_level(path, self._read_image(path), 0)
        except DamagedFileError as error:
            raise UnreadableError(f"{self._name}: its {name} image is damaged ({error}). Copy it again.") from error
        check_associated_claim(level.width_px, level.height_px, name, self._name)
        return level.read_region(Box(0, 0, level.width_px, level.height_px))

    def __enter__(self) -> OmeZarrSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._folder.close()
