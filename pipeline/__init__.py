"""Slides to results: slides, store, tiles, predictions, evaluation."""
