"""TIFF, Aperio SVS, Philips TIFF and OME-TIFF, tile by tile through tifffile."""
