"""Predictions in formats of other programs."""
