"""Formats of makers that only the OpenSlide library reads."""
