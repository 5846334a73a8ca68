"""Focal planes, times and channels in vendors' files: OpenSlide shows one of several without saying so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import tifffile

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.openslide.files import scn_planes
from pipeline.slides.openslide.library import not_rgb
from pipeline.slides.openslide.ndpi.file import SOURCE_LENS, height_nm
from pipeline.slides.tiff.library import TiffStructure
from training.foundation.errors import UnreadableError

_FILTER_SET, _CAPTURE_MODE, _WAVELENGTH_NM = 65434, 65441, 65451
_NO_FILTERS = {"", "none", "brightfield", "bright field", "bf"}
_MAX_BRIGHTFIELD_MODE = 6
"""Capture modes above it are fluorescence (Bio-Formats, tifffile)."""
_MAX_NAMED = 9


def check_one_plane(path: Path, vendor: str, properties: Mapping[str, str]) -> None:
    """Refuse a slide of several planes, as in other formats.

    Raises:
        NotBrightfieldRgbError: it has them. UnreadableError: its tags cannot be read.
    """
    stack = _describe_stack(path, vendor, properties)
    if stack:
        raise NotBrightfieldRgbError(
            f"{path.name}: holds a stack: {stack}. Only slides of one plane are read, and OpenSlide would "
            "silently show one of several. Export one as a separate file, with the vendor's viewer or with `bfconvert`."
        )


def _describe_stack(path: Path, vendor: str, properties: Mapping[str, str]) -> str:
    """Description of the stack, such as "3 focal planes"; "" if there is one plane."""
    if vendor == "hamamatsu" and "hamamatsu.NoLayers" not in properties:
        return _ndpi_stack(path)
    if vendor == "leica":
        planes = scn_planes(path)
        return f"{planes} focal planes" if planes > 1 else ""
    counts = {
        "hamamatsu": lambda p: [(_number(p.get("hamamatsu.NoLayers")), "focal planes")],
        "mirax": _mirax_counts,
        "ventana": lambda p: [(_number(p.get("ventana.Z-layers")), "focal planes")],
        "zeiss": _zeiss_counts,
    }.get(vendor)
    dimensions = counts(properties) if counts else []
    return ", ".join(f"{count} {what}" for count, what in dimensions if count > 1)


def _ndpi_stack(path: Path) -> str:
    try:
        with TiffStructure(path) as tiff:
            if any(_is_fluorescence(tiff, page) for page in tiff.pages()):
                raise not_rgb(path.name, "fluorescence (Hamamatsu's filter set, capture mode or wavelength)")
            scanned = [
                (height_nm(tiff, page), (page.imagewidth, page.imagelength))
                for page in tiff.pages()
                if _is_positive(tiff.tag(SOURCE_LENS, page))
            ]
    except DamagedFileError as error:
        raise UnreadableError(f"{path.name}: its tags cannot be read ({error}). Copy the file again.") from error
    copies = max((scanned.count(one) for one in set(scanned)), default=1)
    return f"{copies} images of one size" if copies > 1 else ""


def _is_fluorescence(tiff: TiffStructure, page: tifffile.TiffPage) -> bool:
    filters, mode = tiff.tag(_FILTER_SET, page), tiff.tag(_CAPTURE_MODE, page)
    has_filters = isinstance(filters, str) and filters.strip(" \0").casefold() not in _NO_FILTERS
    is_mode = isinstance(mode, int) and mode > _MAX_BRIGHTFIELD_MODE
    return has_filters or is_mode or _is_positive(tiff.tag(_WAVELENGTH_NM, page))


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _mirax_counts(properties: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Numbers of focal planes: Slidedat.ini lists the dimensions of the images (zoom, filter, focus)."""
    for key, name in properties.items():
        match = re.fullmatch(r"mirax\.HIERARCHICAL\.(HIER_\d+)_NAME", key)
        if match and "focus" in name.lower():
            yield _number(properties.get(f"mirax.HIERARCHICAL.{match.group(1)}_COUNT")), "focal planes"


def _zeiss_counts(properties: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    for axis, what in (("Z", "focal planes"), ("T", "times"), ("C", "channels")):
        yield _number(properties.get(f"zeiss.Information.Image.Size{axis}")), what


def _number(text: str | None) -> int:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
