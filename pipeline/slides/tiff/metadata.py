"""Scale and scanner of a TIFF as its file states them. Free text in the file is never passed on."""

from __future__ import annotations

import base64
import math
import re
from functools import lru_cache, partial
from xml.etree import ElementTree

import tifffile

from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.mpp import NUMBER, FoundMpp, MppXy, ome_mpp, parse_number, search_mpp, um_per_unit
from pipeline.slides.common.scanner_models import known_model
from pipeline.slides.tiff.described_size import SizeWh, aperio_size, shrinkage
from pipeline.slides.tiff.library import TiffStructure
from pipeline.units import is_plausible_mpp

_MODEL, _X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT, _ICC_PROFILE = 272, 282, 283, 296, 34675
_INCH, _CENTIMETRE = 2, 3
_UM_PER_UNIT = {_INCH: 25_400.0, _CENTIMETRE: 10_000.0}
_SAME_SCALE = 0.02
_PHILIPS_IMAGES = "Attribute[@Name='PIM_DP_SCANNED_IMAGES']/Array/DataObject"


def mpp_of(tiff: TiffStructure) -> FoundMpp:
    """Microns per level-0 pixel (x, y), and the places searched."""
    philips = [("Philips pixel spacing", partial(_philips_mpp, tiff))] if tiff.philips_xml else []
    imagej = [("ImageJ unit", partial(_imagej_mpp, tiff))] if tiff.description.startswith("ImageJ=") else []
    found = search_mpp(
        [
            ("MPP in the description", partial(_described_mpp, tiff)),
            ("OME PhysicalSize", partial(_ome_mpp, tiff)),
            *philips,
            *imagej,
            ("resolution tags", partial(_tag_mpp, tiff)),
        ]
    )
    return _of_this_size(tiff, found)


def _of_this_size(tiff: TiffStructure, found: FoundMpp) -> FoundMpp:
    """Correct a scale that a kept text states for another size of the image; drop it if nothing says which is right."""
    mpp_xy, searched, _ = found
    described, own = aperio_size(tiff.description) or (_ome_size(tiff), None)
    if not mpp_xy or not described:
        return found
    ratio = shrinkage(described, tiff.size_wh)
    if not ratio:
        return found
    scaled = mpp_xy[0] * ratio, mpp_xy[1] * ratio
    tags = _tag_mpp(tiff)
    if own == tiff.size_wh and is_plausible_mpp(scaled[0]):
        return FoundMpp(scaled, f"{searched}; its description says that it is a copy reduced {ratio:.3g} times")
    if tags is not None and all(math.isclose(a, b, rel_tol=_SAME_SCALE) for a, b in zip(tags, scaled, strict=True)):
        return FoundMpp(tags, f"{searched}; resolution tags: {tags[0]:.4g} × {tags[1]:.4g} µm/px")
    width, height = tiff.size_wh
    return FoundMpp(
        None,
        f"{searched}; but that describes an image of {described[0]}×{described[1]} px, and this one has "
        f"{width}×{height}: a copy of another size, whose scale the file does not state, or a part",
    )


def page_mpp(tiff: TiffStructure, page: tifffile.TiffPage, image: int) -> MppXy | None:
    """Microns per pixel of one page, by its own description and tags; None if they do not state it.

    Args:
        image: its number in the file's OME-XML.
    """
    tiff.use_page(page, image)
    return mpp_of(tiff).mpp_xy


def objective_power_of(tiff: TiffStructure) -> float | None:
    """Nominal magnification as Aperio and OME write it."""
    power = _described_power(tiff)
    return _ome_power(tiff) if power is None else power


def scanner_model_of(tiff: TiffStructure) -> str | None:
    """The Model tag, or what Philips writes in its place, if it is a known model."""
    model = tiff.tag(_MODEL)
    return known_model(_philips_text(tiff, "DICOM_MANUFACTURERS_MODEL_NAME") if model is None else str(model))


def icc_of(tiff: TiffStructure, page: tifffile.TiffPage) -> bytes | None:
    """The ICC profile of a page.

    Raises:
        DamagedFileError: its tag holds something other than bytes.
    """
    profile = tiff.tag(_ICC_PROFILE, page)
    if profile is not None and not isinstance(profile, bytes):
        raise DamagedFileError(f"its ICC profile is stored as {type(profile).__name__}, not as bytes")
    return profile


def _described(tiff: TiffStructure, key: str) -> tuple[float, str] | None:
    """A number in the description and its unit, such as `|MPP = 0.252|` in Aperio's files and similar ones (Motic)."""
    end = r"(?=$|[|;\r\n])"
    match = re.search(
        rf"(?:^|[|;\r\n])\s*{key}\s*[=:]\s*({NUMBER})[ \t]*((?![0-9.,])[^|;\r\n]*?)[ \t]*{end}", tiff.description
    )
    number = parse_number(match.group(1)) if match else None
    return None if match is None or number is None else (number, match.group(2))


def _described_power(tiff: TiffStructure) -> float | None:
    power = _described(tiff, "AppMag")
    return power[0] if power and power[1].lower() in ("", "x", "×") else None


def _described_mpp(tiff: TiffStructure) -> MppXy | None:
    mpp = _described(tiff, "MPP")
    unit_um = um_per_unit(mpp[1] or "µm") if mpp else None
    return None if mpp is None or unit_um is None else (mpp[0] * unit_um, mpp[0] * unit_um)


def _imagej_mpp(tiff: TiffStructure) -> MppXy | None:
    """Microns per pixel by the unit that ImageJ names for its resolution tags."""
    match = re.search(r"^unit=(.+)$", tiff.description, re.MULTILINE)
    # ImageJ escapes what is not ASCII.
    return _resolution(tiff, um_per_unit(match.group(1).replace("\\u00B5", "µ")) if match else None)


def _ome_root(tiff: TiffStructure) -> ElementTree.Element | None:
    return parsed_xml(tiff.ome_xml)


def _ome_power(tiff: TiffStructure) -> float | None:
    root = _ome_root(tiff)
    objective = None if root is None else root.find(".//{*}Objective")
    try:
        return None if objective is None else float(objective.attrib["NominalMagnification"])
    except (KeyError, ValueError):
        return None


def ome_images(tiff: TiffStructure) -> list[ElementTree.Element]:
    """The images of the OME-XML in the order of the file's series, without those that have no pixels (MetadataOnly).

    Empty if their number differs from that of the series, since they cannot be matched then.
    """
    root = _ome_root(tiff)
    if root is None:
        return []
    images = [image for image in root.findall("{*}Image") if image.find("{*}Pixels/{*}TiffData") is not None]
    return images if len(images) == len(tiff.series) else []


def _ome_pixels(tiff: TiffStructure) -> ElementTree.Element | None:
    images = ome_images(tiff)[tiff.slide_image :]
    return images[0].find("{*}Pixels") if images else None


def _ome_size(tiff: TiffStructure) -> SizeWh | None:
    pixels = _ome_pixels(tiff)
    sides = [] if pixels is None else [pixels.get("SizeX", ""), pixels.get("SizeY", "")]
    if not sides or not all(side.isascii() and side.isdigit() and len(side) < 10 for side in sides):
        return None
    return int(sides[0]), int(sides[1])


def _ome_mpp(tiff: TiffStructure) -> MppXy | None:
    pixels = _ome_pixels(tiff)
    return None if pixels is None else ome_mpp(pixels.attrib)


def philips_images(tiff: TiffStructure, kind: str) -> list[bytes]:
    """Images of one kind (WSI, LABELIMAGE, MACROIMAGE) in the XML of a Philips TIFF, decoded; b"" if there are no data.

    Source of the structure: openslide.org/formats/philips.
    """
    images = []
    for image in _philips_of_kind(tiff, kind):
        data = image.findtext("Attribute[@Name='PIM_DP_IMAGE_DATA']") or ""
        try:
            images.append(base64.b64decode(data))
        except ValueError:
            images.append(b"")
    return images


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
    """An attribute of the file or of its scan; "" if absent."""
    for image in _philips_of_kind(tiff, "WSI"):
        text = image.findtext(f"Attribute[@Name='{key}']")
        if text is not None:
            return text
    root = parsed_xml(tiff.philips_xml)
    return "" if root is None else root.findtext(f"Attribute[@Name='{key}']") or ""


def _philips_mpp(tiff: TiffStructure) -> MppXy | None:
    """Millimetres between rows, then between columns, as in DICOM."""
    numbers = [parse_number(text) for text in _philips_text(tiff, "DICOM_PIXEL_SPACING").replace('"', " ").split()]
    match numbers:
        case [float(y_mm), float(x_mm)]:
            return 1e3 * x_mm, 1e3 * y_mm
    return None


def _tag_mpp(tiff: TiffStructure) -> MppXy | None:
    unit = tiff.tag(_RESOLUTION_UNIT)
    if unit is None:
        unit = _INCH  # TIFF 6.0, section 8: the default
    return _resolution(tiff, _UM_PER_UNIT.get(unit) if isinstance(unit, int) else None)


def _resolution(tiff: TiffStructure, unit_um: float | None) -> MppXy | None:
    """Microns per pixel from resolution tags that count pixels per unit."""
    x, y = _ratio(tiff.tag(_X_RESOLUTION)), _ratio(tiff.tag(_Y_RESOLUTION))
    return None if unit_um is None or not x or not y else (unit_um / x, unit_um / y)


def _ratio(value: object) -> float | None:
    """A rational number as a tag holds it: numerator and denominator; or a plain one, as some programs write it."""
    match value:
        case (int(numerator), int(denominator)) if denominator:
            return numerator / denominator
        case int(number) | float(number):
            return float(number)
    return None


@lru_cache(maxsize=2)
def parsed_xml(text: str) -> ElementTree.Element | None:
    """The root of an XML text; None if it is empty or damaged."""
    if not text:
        return None
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):  # ValueError: characters that UTF-8 cannot encode
        return None
