"""Annotation formats of other programs, one file for each."""
