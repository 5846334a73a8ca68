"""Verbs of encoders, features and slide-level models."""
