"""Copies as OME-Zarr with zarr's core codecs."""
