"""Predictions as DICOM: a fractional segmentation and a parametric map of a DICOM slide."""
