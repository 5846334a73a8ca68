"""Access to the OpenSlide library, imported only here. Its errors and transparent pixels are converted here."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import openslide
from PIL import Image, ImageCms

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.tiff.prescan import prescan_tags
from training.foundation.errors import UnreadableError


def detect_vendor(path: Path) -> str | None:
    """OpenSlide's name for the file's family; None if it does not recognise it or must not see it."""
    if not prescan_tags(path):
        return None
    try:
        vendor: str | None = openslide.OpenSlide.detect_format(str(path))
    except openslide.OpenSlideError:
        return None
    # OpenSlide does not recognise an .mrxs without its folder; opening it says what is missing.
    return "mirax" if vendor is None and path.suffix == ".mrxs" else vendor


def library_version() -> str:
    """Version of the OpenSlide library itself."""
    return str(openslide.__library_version__)


def not_rgb(name: str, what: str) -> NotBrightfieldRgbError:
    """Error that refuses a slide that holds something other than 8-bit RGB."""
    return NotBrightfieldRgbError(
        f"{name}: holds {what}. Only 8-bit brightfield RGB slides are read. Export it as 8-bit RGB."
    )


class OpenSlideHandle:
    """One slide opened by OpenSlide; reopened after an error, since one bad tile must not take the others with it.

    Thread-safe.

    Raises:
        UnreadableError, NotBrightfieldRgbError: OpenSlide cannot open it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._slide = self._open()
        try:
            self._read_properties(self._slide)
        except openslide.OpenSlideError as error:
            raise self._cannot_be_opened(error) from error

    def _read_properties(self, slide: openslide.OpenSlide) -> None:
        # A property with damaged text is listed, but missing on access.
        texts = {name: slide.properties.get(name) for name in slide.properties}
        self.properties: dict[str, str] = {name: text for name, text in texts.items() if text is not None}
        self.vendor = self.properties.get(openslide.PROPERTY_NAME_VENDOR, "unknown")
        self.objective_power = self.properties.get(openslide.PROPERTY_NAME_OBJECTIVE_POWER)
        self.level_sizes_wh: tuple[tuple[int, int], ...] = tuple(slide.level_dimensions)
        self.level_downsamples: tuple[float, ...] = tuple(slide.level_downsamples)
        self.associated: tuple[str, ...] = tuple(slide.associated_images)

    def read_region(self, level: int, location_xy0: tuple[int, int], size_wh_px: tuple[int, int]) -> Pixels | None:
        """Pixels of a level, uint8 (height, width, 3), white where nothing was scanned; None if all of it is.

        Args:
            location_xy0: the region's corner in whole level-0 pixels.

        Raises:
            DamagedFileError: OpenSlide cannot read it.
        """
        slide = self._slide
        try:
            return _on_white(slide.read_region(location_xy0, level, size_wh_px))
        except openslide.OpenSlideError as error:
            self._replace(slide)
            raise DamagedFileError(str(error)) from error

    def associated_image(self, name: str) -> Pixels:
        """An image beside the slide, uint8 (height, width, 3). Raises DamagedFileError."""
        slide = self._slide
        try:
            rgba = slide.associated_images[name]
        except openslide.OpenSlideError as error:
            self._replace(slide)
            raise DamagedFileError(str(error)) from error
        pixels = _on_white(rgba)
        return white(Box(0, 0, rgba.width, rgba.height)) if pixels is None else pixels

    def icc(self) -> bytes | None:
        """The ICC profile; None if absent or damaged: the pixels can be read all the same."""
        try:
            profile = self._slide.color_profile
        except (ImageCms.PyCMSError, openslide.OpenSlideError):
            return None
        return None if profile is None else bytes(profile.tobytes())

    def _open(self) -> openslide.OpenSlide:
        try:
            return openslide.OpenSlide(str(self._path))
        except openslide.OpenSlideError as error:
            if "color components" in str(error):
                raise not_rgb(self._path.name, f"no RGB (OpenSlide: {error})") from error
            raise self._cannot_be_opened(error) from error

    def _cannot_be_opened(self, error: openslide.OpenSlideError) -> UnreadableError:
        why = str(error)
        # MRXS without its folder is "Unsupported or missing".
        if ("not supported" in why or "nsupported" in why) and "missing" not in why:
            return UnreadableError(
                f"{self._path.name}: is of a variant that OpenSlide {library_version()} does not read: {error}. "
                "Convert it with `bfconvert` or `bioformats2raw`, or export it from the vendor's viewer without it."
            )
        return UnreadableError(
            f"{self._path.name}: OpenSlide {library_version()} cannot open it: {error}. "
            "The file is damaged, incomplete (some formats need their companion files beside them) or of a "
            "variant OpenSlide does not know."
        )

    def _replace(self, dead: openslide.OpenSlide) -> None:
        """Replace a handle: it is dead after its first error, and closes itself once the last thread releases it."""
        with self._lock:
            if self._slide is dead:
                self._slide = self._open()

    def close(self) -> None:
        self._slide.close()


def white(box: Box) -> Pixels:
    """White pixels of a box's size."""
    return np.full((box.height_px, box.width_px, 3), 255, np.uint8)


def _on_white(rgba: Image.Image) -> Pixels | None:
    """Pixels on white, as on the glass: transparent means not scanned. None if all of it is."""
    lowest, highest = rgba.getchannel("A").getextrema()
    if lowest == 255:
        return np.asarray(rgba.convert("RGB"))
    if highest == 0:
        return None
    opaque = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
    return np.asarray(Image.alpha_composite(opaque, rgba))[..., :3]
