"""The web viewer and the napari plug-in, which people look at. No image arithmetic, no torch."""
