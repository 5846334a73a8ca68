"""Kinds of object to write for a DICOM slide, and their stored values, known without loading DICOM's libraries."""

from __future__ import annotations

from typing import Literal, get_args

DicomKind = Literal["dicom-seg", "dicom-pm"]
"""A segmentation (fractional, of type probability) and a parametric map (float32)."""
DICOM_KINDS: tuple[DicomKind, ...] = get_args(DicomKind)
DICOM = "dicom"
"""Format of a DICOM source, as a store says it."""

MAX_FRACTION = 255
"""A probability p is stored as round(255 · p) in a segmentation."""
NOT_PREDICTED = -1.0
"""In a parametric map, said to be padding. A segmentation has no such value: there it is 0."""
