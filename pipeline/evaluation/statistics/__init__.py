"""Measures and their intervals, of arrays alone."""
