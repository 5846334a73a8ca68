"""Predicted seconds and bytes beside those of real steps."""
