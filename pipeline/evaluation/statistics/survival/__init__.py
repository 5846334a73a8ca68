"""Measures of time to an event, with censoring, computed from arrays alone."""
