"""Doing a study: begun, amended, its tasks leased by workers and done."""
