"""Stores into tile tables."""
