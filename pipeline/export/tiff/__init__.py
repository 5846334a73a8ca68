"""Copies as pyramidal TIFF and OME-TIFF."""
