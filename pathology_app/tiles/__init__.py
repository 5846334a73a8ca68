"""Tile, overlay and thumbnail routes."""
