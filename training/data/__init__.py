"""Tiles for training, and statistics of them."""
