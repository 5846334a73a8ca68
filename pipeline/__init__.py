"""From slides to results: slides, store, tiles, predictions, evaluation."""
