"""A training run: the loop, its checkpoints, its log, and its starting weights."""
