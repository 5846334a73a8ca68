"""Copies of a slide store for other programs: NGFF with core codecs only, and pyramidal TIFF."""
