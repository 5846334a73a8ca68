"""Annotation files in and out: QuPath GeoJSON, ASAP XML, Aperio ImageScope XML; one file per format."""
