"""What a TIFF says about its scale and scanner. Free text of the file is never passed on."""

from __future__ import annotations

import base64
import re
from functools import partial
from xml.etree import ElementTree

import tifffile

from pipeline.slides.damage import DamagedFileError
from pipeline.slides.mpp import MppXy, search_mpp
from pipeline.slides.scanner_models import known_model
from pipeline.slides.tiff.library import TiffStructure

_MODEL, _X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT, _ICC_PROFILE = 272, 282, 283, 296, 34675
_UM_PER_UNIT = {2: 25_400.0, 3: 10_000.0}
"""ResolutionUnit 2 is the inch, 3 the centimetre."""
_UM_PER_OME_UNIT = {
    "pm": 1e-6, "Å": 1e-4, "nm": 1e-3, "µm": 1.0, "um": 1.0, "mm": 1e3, "cm": 1e4, "dm": 1e5, "m": 1e6,
    "thou": 25.4, "in": 25_400.0, "ft": 304_800.0, "pt": 25_400.0 / 72,
}  # fmt: skip
_PHILIPS_IMAGES = "Attribute[@Name='PIM_DP_SCANNED_IMAGES']/Array/DataObject"


def mpp_of(tiff: TiffStructure) -> tuple[MppXy | None, str]:
    """Microns per level-0 pixel (x, y), and where it was looked for."""
    philips = [("Philips pixel spacing", partial(_philips_mpp, tiff))] if tiff.philips_xml else []
    return search_mpp(
        [
            ("Aperio MPP", partial(_aperio_mpp, tiff)),
            ("OME PhysicalSize", partial(_ome_mpp, tiff)),
            *philips,
            ("resolution tags", partial(_tag_mpp, tiff)),
        ]
    )


def objective_power_of(tiff: TiffStructure) -> float | None:
    """Nominal magnification as Aperio and OME write it."""
    power = _aperio_number(tiff, "AppMag")
    return _ome_power(tiff) if power is None else power


def scanner_model_of(tiff: TiffStructure) -> str | None:
    """The Model tag, or what Philips writes in its place, if it is a known model."""
    model = tiff.tag(_MODEL)
    return known_model(_philips_text(tiff, "DICOM_MANUFACTURERS_MODEL_NAME") if model is None else str(model))


def icc_of(tiff: TiffStructure, page: tifffile.TiffPage) -> bytes | None:
    """The ICC profile of a page.

    Raises:
        DamagedFileError: its tag holds something else than bytes.
    """
    profile = tiff.tag(_ICC_PROFILE, page)
    if profile is not None and not isinstance(profile, bytes):
        raise DamagedFileError(f"its ICC profile is stored as {type(profile).__name__}, not as bytes")
    return profile


def _aperio_number(tiff: TiffStructure, key: str) -> float | None:
    if not tiff.is_of("svs"):
        return None
    match = re.search(rf"\|\s*{key}\s*=\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(\||$)", tiff.description)
    return float(match.group(1)) if match else None


def _aperio_mpp(tiff: TiffStructure) -> MppXy | None:
    mpp = _aperio_number(tiff, "MPP")
    return None if mpp is None else (mpp, mpp)


def _ome_root(tiff: TiffStructure) -> ElementTree.Element | None:
    return parsed_xml(tiff.ome_xml)


def _ome_power(tiff: TiffStructure) -> float | None:
    root = _ome_root(tiff)
    objective = None if root is None else root.find(".//{*}Objective")
    try:
        return None if objective is None else float(objective.attrib["NominalMagnification"])
    except (KeyError, ValueError):
        return None


def _ome_mpp(tiff: TiffStructure) -> MppXy | None:
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


def philips_images(tiff: TiffStructure, kind: str) -> list[bytes]:
    """What the XML of a Philips TIFF holds of one kind (WSI, LABELIMAGE, MACROIMAGE), decoded; b"" without data.

    Source of the structure: openslide.org/formats/philips.
    """
    found = []
    for image in _philips_of_kind(tiff, kind):
        data = image.findtext("Attribute[@Name='PIM_DP_IMAGE_DATA']") or ""
        try:
            found.append(base64.b64decode(data))
        except ValueError:
            found.append(b"")
    return found


def _philips_of_kind(tiff: TiffStructure, kind: str) -> list[ElementTree.Element]:
    root = parsed_xml(tiff.philips_xml)
    if root is None:
        return []
    return [
        image
        for image in root.iterfind(_PHILIPS_IMAGES)
        if (image.findtext("Attribute[@Name='PIM_DP_IMAGE_TYPE']") or "").strip() == kind
    ]


def _philips_text(tiff: TiffStructure, key: str) -> str:
    """An attribute of the file or of its scan; "" without."""
    for image in _philips_of_kind(tiff, "WSI"):
        text = image.findtext(f"Attribute[@Name='{key}']")
        if text is not None:
            return text
    root = parsed_xml(tiff.philips_xml)
    return "" if root is None else root.findtext(f"Attribute[@Name='{key}']") or ""


def _philips_mpp(tiff: TiffStructure) -> MppXy | None:
    """Millimetres between rows, then between columns, as DICOM has them."""
    try:
        y_mm, x_mm = (float(text) for text in _philips_text(tiff, "DICOM_PIXEL_SPACING").replace('"', " ").split())
    except ValueError:
        return None
    return 1e3 * x_mm, 1e3 * y_mm


def _tag_mpp(tiff: TiffStructure) -> MppXy | None:
    unit = tiff.tag(_RESOLUTION_UNIT)
    unit_um = _UM_PER_UNIT.get(unit) if isinstance(unit, int) else None
    x, y = _ratio(tiff.tag(_X_RESOLUTION)), _ratio(tiff.tag(_Y_RESOLUTION))
    return None if unit_um is None or not x or not y else (unit_um / x, unit_um / y)


def _ratio(value: object) -> float | None:
    """A rational number as a tag holds it: numerator and denominator."""
    match value:
        case (int(numerator), int(denominator)) if denominator:
            return numerator / denominator
    return None


def parsed_xml(text: str) -> ElementTree.Element | None:
    """The root of an XML text; None without text, or where it is damaged."""
    if not text:
        return None
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):  # ValueError: characters that UTF-8 does not have
        return None
