"""Annotations in the browser: their routes, and the tiles that they are drawn from."""
