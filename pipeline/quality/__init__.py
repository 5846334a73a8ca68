"""A second look at the pixels: focus, artefacts, stain."""
