"""Annotations as other programs write them, one file for each."""
