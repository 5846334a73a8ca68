"""Suffixes of DICOM instances, apart from their reader: looking for slides does not load its libraries."""

DICOM_SUFFIXES = (".dcm", ".dicom")
"""Of single instances: the slide is the folder that they lie in."""
