"""Tile, overlay and thumbnail routes, and the open slides behind them."""
