"""The user interfaces: the web viewer and the napari plug-in. No image arithmetic, no torch."""
