"""Attributes of DICOM files: their names, and the numbers and codes that say how pixels are stored. No other values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydicom.dataset import Dataset
from pydicom.multival import MultiValue

from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.reading import is_dicom
from pipeline.slides.dicom.headers.attributes import pydicom_errors
from pipeline.slides.dicom.headers.header import read_header
from training.foundation.errors import UnreadableError

MAX_FILES, MAX_ATTRIBUTES, MAX_NUMBERS, MAX_TEXT, MAX_DEPTH = 100, 300, 8, 64, 4
_OF_STORAGE = (
    "SOPClassUID", "ImageType", "Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation",
    "PlanarConfiguration", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "LossyImageCompression",
    "LossyImageCompressionMethod", "TotalPixelMatrixColumns", "TotalPixelMatrixRows", "TotalPixelMatrixFocalPlanes",
    "NumberOfOpticalPaths", "DimensionOrganizationType", "ImageOrientationSlide", "PixelSpacing",
    "ConcatenationFrameOffsetNumber",
)  # fmt: skip
"""Attributes whose values are shown."""
_WORDS = {
    "ORIGINAL", "DERIVED", "PRIMARY", "SECONDARY", "VOLUME", "LABEL", "OVERVIEW", "THUMBNAIL", "LOCALIZER", "NONE",
    "RESAMPLED", "RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT", "MONOCHROME1", "MONOCHROME2", "PALETTE COLOR",
    "TILED_FULL", "TILED_SPARSE", "3D", "ISO_10918_1", "ISO_15444_1", "ISO_14495_1",
}  # fmt: skip
_NUMBER_CHARACTERS = set("0123456789.-+eE")


def describe_dicom(path: Path) -> dict[str, Any]:
    """The files of a slide: one, or those below a folder."""
    paths = [path] if path.is_file() else sorted(child for child in path.rglob("*") if child.is_file())
    files = [child for child in paths if _is_dicom(child)]
    described = [_file(each) for each in files[:MAX_FILES]]
    return {"files": len(files), "others": len(paths) - len(files), "described": described}


def _is_dicom(path: Path) -> bool:
    try:
        return is_dicom(path)
    except UnreadableError:
        return False


def _file(path: Path) -> dict[str, Any]:
    try:
        header = read_header(path)
        with pydicom_errors():
            return {
                "bytes": header.file_bytes,
                "transfer_syntax": str(header.transfer_syntax)[:MAX_TEXT],
                "encapsulated": header.pixel_bytes is None,
                "attributes": _names(header.dataset, 0)[:MAX_ATTRIBUTES],
                "values": {name: shown for name in _OF_STORAGE if (shown := _shown(header.dataset.get(name)))},
            }
    except (DamagedFileError, UnreadableError) as error:
        return {"bytes": path.stat().st_size, "cannot be read": type(error).__name__}


def _names(dataset: Dataset, depth: int) -> list[str]:
    """Tag and kind of each attribute; those in the first item of a sequence follow it, indented by a dot."""
    names: list[str] = []
    for element in dataset:
        names.append(f"{'.' * depth}{element.tag:08x} {element.VR}")
        if element.VR == "SQ" and element.value and depth < MAX_DEPTH:
            names += _names(element.value[0], depth + 1)
    return names


def _shown(value: object) -> str:
    """Numbers, UIDs and DICOM's own words; anything else only as "other"."""
    values = list(value)[:MAX_NUMBERS] if isinstance(value, MultiValue) else [value]
    texts = [str(each)[:MAX_TEXT] for each in values if each not in (None, "")]
    return "\\".join(text if text in _WORDS or not set(text) - _NUMBER_CHARACTERS else "other" for text in texts)


def texts_of_dicom(path: Path) -> Iterator[str]:
    """Values of a file that are not bytes, those in sequences, too.

    Raises:
        DamagedFileError, UnreadableError: it cannot be read.
    """
    header = read_header(path)
    with pydicom_errors():
        yield from _texts(header.dataset)


def _texts(dataset: Dataset) -> Iterator[str]:
    for element in dataset:
        if element.VR == "SQ":
            for item in element.value or ():
                yield from _texts(item)
        elif not isinstance(element.value, bytes):
            yield str(element.value)
