"""Layers over the slide's pixels in its store: predictions, tissue, damage, quality."""
