"""Readings: the slides that a reader has to read, and what they may see."""
