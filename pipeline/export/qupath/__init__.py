"""Predictions as QuPath's GeoJSON."""
