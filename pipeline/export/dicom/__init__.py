"""Predictions as DICOM: a fractional segmentation and a parametric map over a DICOM slide."""
