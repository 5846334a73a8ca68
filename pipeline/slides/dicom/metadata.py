"""Scale and scanner of a DICOM slide as its file states them. Nothing that names a patient, a specimen or a device."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pydicom.dataset import Dataset

from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.mpp import FoundMpp, MppXy, search_mpp
from pipeline.slides.common.scanner_models import known_model
from pipeline.slides.dicom.headers.attributes import as_number, first_item, integer, number, text, value, values
from pipeline.slides.dicom.headers.header import Header

_MAX_ICC_BYTES = 16 * 2**20
_LABEL_IN_IMAGE = ("BurnedInAnnotation", "SpecimenLabelInImage")


def mpp_of(header: Header) -> FoundMpp:
    """Microns per pixel (x, y) of this level, and the places searched."""
    shared = first_item(header.dataset, "SharedFunctionalGroupsSequence")
    return search_mpp(
        [
            ("shared Pixel Spacing", partial(_spacing, shared)),
            ("first frame's Pixel Spacing", partial(_spacing, header.frames.first)),
            ("Imaged Volume Width and Height", partial(_from_volume, header.dataset)),
        ]
    )


def icc_of(header: Header) -> bytes | None:
    """The ICC profile of the optical path."""
    profile = value(first_item(header.dataset, "OpticalPathSequence"), "ICCProfile")
    is_profile = isinstance(profile, bytes) and 0 < len(profile) <= _MAX_ICC_BYTES
    return profile if is_profile else None


def objective_power_of(header: Header) -> float | None:
    """Nominal magnification of the objective."""
    try:
        return number(first_item(header.dataset, "OpticalPathSequence"), "ObjectiveLensPower")
    except DamagedFileError:
        return None


def scanner_model_of(header: Header) -> str | None:
    """The model, if it is a known one."""
    return known_model(text(header.dataset, "ManufacturerModelName"))


def label_in_image(headers: Iterable[Header]) -> str | None:
    """Attributes by which files say that a label, or other text that can name a person, is among their pixels."""
    names = {name for header in headers for name in _LABEL_IN_IMAGE if _is_yes(values(header.dataset, name))}
    return " and ".join(f"{name} YES" for name in sorted(names)) or None


def _is_yes(entries: list[object]) -> bool:
    return any(str(one).strip("\0 ").upper() == "YES" for one in entries)


def _spacing(groups: Dataset) -> MppXy | None:
    """Pixel Spacing is in mm, first between rows (y), then between columns (x)."""
    try:
        mm = [
            as_number(one, "PixelSpacing")
            for one in values(first_item(groups, "PixelMeasuresSequence"), "PixelSpacing")
        ]
    except DamagedFileError:
        return None
    return (mm[1] * 1000, mm[0] * 1000) if len(mm) == 2 else None


def _from_volume(ds: Dataset) -> MppXy | None:
    """Size of the imaged volume in mm over the size of the matrix in pixels."""
    try:
        width_mm, height_mm = number(ds, "ImagedVolumeWidth"), number(ds, "ImagedVolumeHeight")
    except DamagedFileError:
        return None
    width_px, height_px = integer(ds, "TotalPixelMatrixColumns"), integer(ds, "TotalPixelMatrixRows")
    if width_mm is None or height_mm is None or width_px < 1 or height_px < 1:
        return None
    return width_mm * 1000 / width_px, height_mm * 1000 / height_px
