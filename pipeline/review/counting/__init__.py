"""Counts: the area that was counted in, the objects in it by class, and their density."""
