"""Logistic probes: how well an encoder's stored features separate the classes of a tile set."""
