"""The napari plug-in."""
