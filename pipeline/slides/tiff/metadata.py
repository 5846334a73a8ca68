"""What a TIFF says about its scale and scanner. Free text of the file is never passed on."""

from __future__ import annotations

import base64
import binascii
import re
from xml.etree import ElementTree

import tifffile

from pipeline.slides.scanner_models import known_model
from pipeline.units import is_plausible_mpp

_UM_PER_UNIT = {2: 25_400.0, 3: 10_000.0}
"""ResolutionUnit 2 is the inch, 3 the centimetre."""
_UM_PER_OME_UNIT = {
    "pm": 1e-6, "Å": 1e-4, "nm": 1e-3, "µm": 1.0, "um": 1.0, "mm": 1e3, "cm": 1e4, "dm": 1e5, "m": 1e6,
    "thou": 25.4, "in": 25_400.0, "ft": 304_800.0, "pt": 25_400.0 / 72,
}  # fmt: skip
_PHILIPS_IMAGES = "Attribute[@Name='PIM_DP_SCANNED_IMAGES']/Array/DataObject"


def mpp_of(tiff: tifffile.TiffFile) -> tuple[tuple[float, float] | None, str]:
    """Microns per level-0 pixel (x, y), and where it was looked for."""
    looked_in = []
    for place, find in (
        ("Aperio MPP", _aperio_mpp),
        ("OME PhysicalSize", _ome_mpp),
        *([("Philips pixel spacing", _philips_mpp)] if tiff.is_philips else []),
        ("resolution tags", _tag_mpp),
    ):
        found = find(tiff)
        looked_in.append(f"{place}: {'none' if found is None else f'{found[0]:.4g} × {found[1]:.4g} µm/px'}")
        if found is not None and is_plausible_mpp(found[0]) and is_plausible_mpp(found[1]):
            return found, "; ".join(looked_in)
    return None, "; ".join(looked_in)


def objective_power_of(tiff: tifffile.TiffFile) -> float | None:
    """Nominal magnification as Aperio and OME write it."""
    power = _aperio_number(tiff, "AppMag")
    return _ome_power(tiff) if power is None else power


def scanner_model_of(tiff: tifffile.TiffFile) -> str | None:
    """The Model tag, or what Philips writes in its place, if it is a known model."""
    tag = tiff.pages.first.tags.get(272)
    return known_model(_philips_text(tiff, "DICOM_MANUFACTURERS_MODEL_NAME") if tag is None else str(tag.value))


def _aperio_number(tiff: tifffile.TiffFile, key: str) -> float | None:
    if not tiff.is_svs:
        return None
    match = re.search(rf"\|\s*{key}\s*=\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(\||$)", tiff.pages.first.description)
    return float(match.group(1)) if match else None


def _aperio_mpp(tiff: tifffile.TiffFile) -> tuple[float, float] | None:
    mpp = _aperio_number(tiff, "MPP")
    return None if mpp is None else (mpp, mpp)


def _ome_root(tiff: tifffile.TiffFile) -> ElementTree.Element | None:
    if not tiff.is_ome or not tiff.ome_metadata:
        return None
    try:
        return ElementTree.fromstring(tiff.ome_metadata)
    except ElementTree.ParseError:
        return None


def _ome_power(tiff: tifffile.TiffFile) -> float | None:
    root = _ome_root(tiff)
    objective = None if root is None else root.find(".//{*}Objective")
    try:
        return None if objective is None else float(objective.attrib["NominalMagnification"])
    except (KeyError, ValueError):
        return None


def _ome_mpp(tiff: tifffile.TiffFile) -> tuple[float, float] | None:
    root = _ome_root(tiff)
    if root is None:
        return None
    pixels = root.find(".//{*}Pixels")
    if pixels is None:
        return None
    x = _ome_length(pixels, "PhysicalSizeX")
    y = _ome_length(pixels, "PhysicalSizeY")
    return None if x is None or y is None else (x, y)


def _ome_length(pixels: ElementTree.Element, key: str) -> float | None:
    try:
        # The letter mu has two codes: a sign of its own, and the Greek letter.
        unit = pixels.attrib.get(f"{key}Unit", "µm").replace("\u03bc", "\u00b5")
        return float(pixels.attrib[key]) * _UM_PER_OME_UNIT[unit]
    except (KeyError, ValueError):
        return None


def philips_images(tiff: tifffile.TiffFile, kind: str) -> list[bytes]:
    """What the XML of a Philips TIFF holds of one kind (WSI, LABELIMAGE, MACROIMAGE), decoded; b"" without data.

    Source of the structure: openslide.org/formats/philips.
    """
    found = []
    for image in _philips_of_kind(tiff, kind):
        data = image.findtext("Attribute[@Name='PIM_DP_IMAGE_DATA']") or ""
        try:
            found.append(base64.b64decode(data))
        except binascii.Error:
            found.append(b"")
    return found


def _philips_of_kind(tiff: tifffile.TiffFile, kind: str) -> list[ElementTree.Element]:
    if not tiff.is_philips or not tiff.philips_metadata:
        return []
    try:
        root = ElementTree.fromstring(tiff.philips_metadata)
    except ElementTree.ParseError:
        return []
    return [
        image
        for image in root.iterfind(_PHILIPS_IMAGES)
        if (image.findtext("Attribute[@Name='PIM_DP_IMAGE_TYPE']") or "").strip() == kind
    ]


def _philips_text(tiff: tifffile.TiffFile, key: str) -> str:
    """An attribute of the file or of its scan; "" without."""
    if not tiff.is_philips or not tiff.philips_metadata:
        return ""
    for image in _philips_of_kind(tiff, "WSI"):
        text = image.findtext(f"Attribute[@Name='{key}']")
        if text is not None:
            return text
    try:
        return ElementTree.fromstring(tiff.philips_metadata).findtext(f"Attribute[@Name='{key}']") or ""
    except ElementTree.ParseError:
        return ""


def _philips_mpp(tiff: tifffile.TiffFile) -> tuple[float, float] | None:
    """Millimetres between rows, then between columns, as DICOM has them."""
    try:
        y_mm, x_mm = (float(text) for text in _philips_text(tiff, "DICOM_PIXEL_SPACING").replace('"', " ").split())
    except ValueError:
        return None
    return 1e3 * x_mm, 1e3 * y_mm


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
