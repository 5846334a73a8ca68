"""Clusters that are not at hand: their processors and links, as a file states them."""
