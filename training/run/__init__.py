"""A training run: the loop, its checkpoints, its log, and what it starts from."""
