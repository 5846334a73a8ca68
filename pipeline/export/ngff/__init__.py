"""Copies as OME-Zarr of zarr's core codecs."""
