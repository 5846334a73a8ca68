"""An existing OME-Zarr (NGFF 0.4 on zarr v2, 0.5 on zarr v3) as a slide, read chunk by chunk through zarr."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path

from pipeline.box import Box, check_region
from pipeline.codecs.types import Pixels
from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.absent import AbsentTiles
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.level_content import ANOTHER_IMAGE
from pipeline.slides.common.pyramid import is_reduced_copy
from pipeline.slides.common.series import choose_series, left_out, recorded_series
from pipeline.slides.common.side_images import kind_by_name
from pipeline.slides.common.slide import EncodedLevel, NotCopied, SlideInfo
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.ome_zarr.images import ROOT, ZarrImage, find_images
from pipeline.slides.ome_zarr.library import ZarrFolder, is_of_zarr
from pipeline.slides.ome_zarr.metadata import (
    Multiscale,
    mpp_of,
    objective_power_of,
    read_multiscale,
    xml_channels,
    xml_pixels,
)
from pipeline.slides.ome_zarr.pixels import OmeZarrLevel
from pipeline.slides.ome_zarr.validate import (
    check_associated_claim,
    check_claim,
    has_stated_scale,
    starts_at_same_corner,
)
from training.foundation.errors import UnreadableError

_OTHER_SCALE = "an image of the slide's proportions states a scale that contradicts its size and is left out as a level"


class OmeZarrSlide:
    """One image of an OME-Zarr folder. All its levels take the decode route.

    Args:
        path: the folder: an image, or a container of several as bioformats2raw writes it.
        series: the image of a container to read, by its path in it.
    """

    def __init__(self, path: Path, series: str | None = None) -> None:
        self._path, self._name = path, path.name
        self.files = tuple(sorted(file for file in path.rglob("*") if file.is_file() and is_of_zarr(file)))
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
            raise UnreadableError(f"{self._name}: is already a gemslide store. Open it directly, or name its source.")
        self._images = find_images(self._folder, self._path, self._name)
        chosen = self._choose(series)
        self._chosen = chosen
        if chosen.path:  # two images of one container are two slides
            self.files = tuple(file for file in self.files if (self._path / chosen.path) in file.parents)
        self._multiscale = self._read_image(chosen)
        self._warnings = SlideWarnings()
        if clause := left_out([image.candidate for image in self._images], self._chosen.candidate):
            self._warnings.add(clause)
        self._levels = self._read_levels()
        self.info = self._read_info()

    # --- contents of the folder ------------------------------------------------------------------

    def _choose(self, series: str | None) -> ZarrImage:
        has_one = [image.series for image in self._images] == [""]
        if has_one and series not in (None, ROOT):
            raise UnreadableError(
                f"{self._name}: has one image, which has no name: leave out --series {series!r:.100}."
            )
        if has_one and series == ROOT:
            series = "" if self._images[0].kind else None
        chosen = choose_series([image.candidate for image in self._images], series, self._name)
        return next(image for image in self._images if image.series == chosen.series)

    def _read_image(self, image: ZarrImage) -> Multiscale:
        where = f"{self._name}/{image.path}" if image.path else self._name
        channels = [] if image.xml_number is None else xml_channels(self._path, image.xml_number)
        return read_multiscale(self._folder.attributes(image.path), where, image.index, channels)

    def _read_levels(self) -> list[OmeZarrLevel]:
        """The levels that are one image at decreasing sizes, however they are ordered; the rest are rebuilt."""
        opened = [(index, self._open_level(self._chosen, self._multiscale, index)) for index in self._slide_datasets()]
        opened.sort(key=lambda entry: entry[1].width_px, reverse=True)
        finest_index, finest = opened[0]
        check_claim(finest.width_px, finest.height_px, self._bytes, self._name)
        self._multiscale = self._multiscale.with_finest(finest_index)
        levels = [finest]
        for index, level in opened[1:]:
            if level.width_px < levels[-1].width_px and self._is_reduced_copy(index, level, finest, finest_index):
                self._add_level(levels, level, index, finest_index)
        return levels

    def _add_level(self, levels: list[OmeZarrLevel], level: OmeZarrLevel, index: int, finest_index: int) -> None:
        """Add a level to finer ones if it shows the same at the scale that it states; else warn."""
        widths_px = level.width_px, levels[0].width_px
        if not has_stated_scale(self._multiscale, index, finest_index, widths_px):
            self._warnings.add(_OTHER_SCALE, (level.width_px, level.height_px))
        elif level.is_another_image(levels[-1]):
            self._warnings.add(ANOTHER_IMAGE, (level.width_px, level.height_px))
        else:
            levels.append(level)

    def _slide_datasets(self) -> list[int]:
        """Datasets whose paths do not call them a label or a thumbnail; all, if every one of them does."""
        paths = [dataset.path for dataset in self._multiscale.datasets]
        return [i for i, path in enumerate(paths) if kind_by_name(path) is None] or list(range(len(paths)))

    def _open_level(self, image: ZarrImage, multiscale: Multiscale, index: int) -> OmeZarrLevel:
        path = "/".join(part for part in (image.path, multiscale.datasets[index].path) if part)
        return OmeZarrLevel(self._folder.array(path), multiscale, self._name)

    def _is_reduced_copy(self, index: int, level: OmeZarrLevel, finest: OmeZarrLevel, finest_index: int) -> bool:
        """Whether a level shows the same image: the same shape, from the same corner."""
        is_copy = is_reduced_copy((level.width_px, level.height_px), (finest.width_px, finest.height_px))
        return is_copy and starts_at_same_corner(self._multiscale, index, finest_index)

    # --- metadata --------------------------------------------------------------------------------

    def _read_info(self) -> SlideInfo:
        finest = self._levels[0]
        number = self._chosen.xml_number
        pixels = None if number is None else xml_pixels(self._path, number)
        mpp = mpp_of(self._multiscale, pixels, (finest.width_px, finest.height_px))
        return SlideInfo(
            format="ome-zarr",
            levels=tuple(level.size(finest) for level in self._levels),
            mpp_xy=mpp.mpp_xy,
            mpp_looked_in=mpp.looked_in,
            mpp_contradiction=mpp.contradiction,
            objective_power=objective_power_of(self._path),
            associated=tuple(self._associated),
            series=recorded_series([image.candidate for image in self._images], self._chosen.candidate),
            warnings=self._warnings,
        )

    @cached_property
    def _associated(self) -> dict[str, ZarrImage]:
        """Label, macro and thumbnail among a container's images, by their names."""
        images: dict[str, ZarrImage] = {}
        for image in self._images:
            if image.kind is not None and image is not self._chosen:
                with suppress(DamagedFileError, UnreadableError, NotBrightfieldRgbError):
                    self._read_image(image)
                    images.setdefault(image.kind, image)
        return images

    # --- pixels ----------------------------------------------------------------------------------

    def read_region(self, level: int, box: Box) -> Pixels:
        check_region(level, len(self._levels), box, self._name)
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        return NotCopied("chunks of an OME-Zarr are decoded and stored again")

    def absent_tiles(self, level: int) -> AbsentTiles:
        check_region(level, len(self._levels), Box(0, 0, 0, 0), self._name)
        return self._levels[level].absent_tiles()

    def associated_image(self, name: str) -> Pixels:
        image = self._associated[name]
        try:
            level = self._open_level(image, self._read_image(image), 0)
        except DamagedFileError as error:
            raise UnreadableError(f"{self._name}: its {name} image is damaged ({error}). Copy it again.") from error
        check_associated_claim(level.width_px, level.height_px, name, self._name)
        return level.read_region(Box(0, 0, level.width_px, level.height_px))

    def __enter__(self) -> OmeZarrSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._folder.close()
