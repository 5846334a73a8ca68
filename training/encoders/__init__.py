"""Tile encoders of any origin: a row that describes one, its weights, its network, and what it returns for tiles."""
