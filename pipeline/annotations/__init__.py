"""Annotation files of QuPath, ASAP and ImageScope: one reader and one writer per format."""
