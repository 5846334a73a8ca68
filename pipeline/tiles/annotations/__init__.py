"""Annotation files into polygons, one file per format."""
