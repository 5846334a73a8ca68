"""Slides that are open, and what is told of them."""
