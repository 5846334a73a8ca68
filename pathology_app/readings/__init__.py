"""Readings: what a reader may see and has to read."""
