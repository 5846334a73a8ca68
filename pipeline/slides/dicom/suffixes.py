"""Suffixes of DICOM instances, kept apart from the reader: searching for slides does not load its libraries."""

DICOM_SUFFIXES = (".dcm", ".dicom")
"""Of single instances: the slide is the folder that they are in."""
