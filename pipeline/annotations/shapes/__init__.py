"""Outlines as shapes: rings, crossings, areas, repair."""
