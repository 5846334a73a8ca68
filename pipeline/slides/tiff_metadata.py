"""What a TIFF says about its scale and scanner. Free text of the file is never passed on."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import tifffile

from pipeline.units import is_plausible_mpp

_UM_PER_UNIT = {2: 25_400.0, 3: 10_000.0}
"""ResolutionUnit 2 is the inch, 3 the centimetre."""
_UM_PER_OME_UNIT = {"µm": 1.0, "um": 1.0, "nm": 1e-3, "mm": 1e3, "cm": 1e4}


def mpp_of(tiff: tifffile.TiffFile) -> tuple[tuple[float, float] | None, str]:
    """Microns per level-0 pixel (x, y), and where it was looked for."""
    looked_in = []
    for place, find in (("Aperio MPP", _aperio_mpp), ("OME PhysicalSize", _ome_mpp), ("resolution tags", _tag_mpp)):
        found = find(tiff)
        looked_in.append(f"{place}: {'none' if found is None else f'{found[0]:.4g} × {found[1]:.4g} µm/px'}")
        if found is not None and is_plausible_mpp(found[0]) and is_plausible_mpp(found[1]):
            return found, "; ".join(looked_in)
    return None, "; ".join(looked_in)


def objective_power_of(tiff: tifffile.TiffFile) -> float | None:
    """Nominal magnification as Aperio writes it."""
    return _aperio_number(tiff, "AppMag")


def scanner_model_of(tiff: tifffile.TiffFile) -> str | None:
    """The Model tag, if it looks like a product name; serial numbers are not passed on."""
    tag = tiff.pages.first.tags.get(272)
    text = str(tag.value).strip("\0 ") if tag is not None else ""
    return text if re.fullmatch(r"[A-Za-z][A-Za-z0-9 .+-]{1,40}", text) else None


def _aperio_number(tiff: tifffile.TiffFile, key: str) -> float | None:
    if not tiff.is_svs:
        return None
    match = re.search(rf"\|\s*{key}\s*=\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(\||$)", tiff.pages.first.description)
    return float(match.group(1)) if match else None


def _aperio_mpp(tiff: tifffile.TiffFile) -> tuple[float, float] | None:
    mpp = _aperio_number(tiff, "MPP")
    return None if mpp is None else (mpp, mpp)


def _ome_mpp(tiff: tifffile.TiffFile) -> tuple[float, float] | None:
    if not tiff.is_ome or not tiff.ome_metadata:
        return None
    try:
        root = ElementTree.fromstring(tiff.ome_metadata)
    except ElementTree.ParseError:
        return None
    pixels = root.find(".//{*}Pixels")
    if pixels is None:
        return None
    x = _ome_length(pixels, "PhysicalSizeX")
    y = _ome_length(pixels, "PhysicalSizeY")
    return None if x is None or y is None else (x, y)


def _ome_length(pixels: ElementTree.Element, key: str) -> float | None:
    try:
        return float(pixels.attrib[key]) * _UM_PER_OME_UNIT[pixels.attrib.get(f"{key}Unit", "µm")]
    except (KeyError, ValueError):
        return None


def _tag_mpp(tiff: tifffile.TiffFile) -> tuple[float, float] | None:
    tags = tiff.pages.first.tags
    x_tag, y_tag, unit_tag = (tags.get(code) for code in (282, 283, 296))
    if x_tag is None or y_tag is None or unit_tag is None:
        return None
    try:
        unit_um = _UM_PER_UNIT.get(int(unit_tag.value))
        x, y = (numerator / denominator for numerator, denominator in (x_tag.value, y_tag.value))
        return None if unit_um is None else (unit_um / x, unit_um / y)
    except (ZeroDivisionError, TypeError, ValueError):
        return None
