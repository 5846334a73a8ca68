"""Annotations outside studies: drawn, saved, exchanged, proved."""
