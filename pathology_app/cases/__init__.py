"""Slides beside the one shown: those of its case, its neighbours in a list, and slides found by their names."""
