"""Measures and their intervals, computed from arrays alone."""
