"""Targets of slide-level networks: losses for training, predictions for people."""
