"""Tiles as training sees them, and what is counted of them."""
