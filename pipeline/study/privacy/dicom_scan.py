"""DICOM objects of an export: only attributes of our own results, and none that reveals whose slide it is."""

from __future__ import annotations

from pathlib import Path

import pydicom
from pydicom.datadict import keyword_for_tag

from pipeline.study.privacy.dicom_attributes import ALLOWED, MUST_BE_EMPTY
from pipeline.study.privacy.names import Names

TEXTS = frozenset({"AE", "CS", "LO", "LT", "PN", "SH", "ST", "UC", "UR", "UT", "DA", "DT", "IS"})


def judge_dicom(path: Path, names: Names) -> str | None:
    """Describe what is wrong with a file, as a clause; None if nothing is."""
    try:
        dataset = pydicom.dcmread(path, stop_before_pixels=True)
        elements = [*dataset.file_meta, *dataset.iterall()]
    except (OSError, ValueError, AttributeError, pydicom.errors.InvalidDicomError) as error:
        return f"cannot be read as DICOM ({type(error).__name__})"
    for element in elements:
        keyword = keyword_for_tag(element.tag)
        if keyword in MUST_BE_EMPTY:
            if not _is_empty(element.value):
                return f"has {keyword}, which can reveal whose slide it is"
        elif keyword not in ALLOWED:
            return f"has the attribute {keyword or element.tag}, which our own results do not have"
        if element.VR in TEXTS and names.first_in(str(element.value)):
            return f"{keyword} names a slide, patient, site, reader or file"
    return None


def _is_empty(value: object) -> bool:
    return value is None or str(value).strip("^ ") in ("", "[]", "None")
