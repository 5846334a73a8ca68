"""OME-Zarr 0.4 and 0.5 written by other programs."""
