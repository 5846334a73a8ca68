"""Copies and results in formats of other programs."""
