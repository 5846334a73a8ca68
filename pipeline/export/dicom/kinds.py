"""Kinds of object to write for a DICOM slide, and their stored values, available without loading DICOM's libraries."""

from __future__ import annotations

from typing import Literal, get_args

DicomKind = Literal["dicom-seg", "dicom-pm"]
"""A segmentation (fractional, of type probability) and a parametric map (float32)."""
DICOM_KINDS: tuple[DicomKind, ...] = get_args(DicomKind)
DICOM = "dicom"
"""Format of a DICOM source, as stated in a store."""

MAX_FRACTION = 255
"""A probability p is stored as round(255 · p) in a segmentation."""
NOT_PREDICTED = -1.0
"""Value in a parametric map, declared as padding. A segmentation has no such value and uses 0."""
