"""Trained models on slides."""
