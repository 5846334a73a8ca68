"""Damage in a slide file: found, masked, repaired."""
