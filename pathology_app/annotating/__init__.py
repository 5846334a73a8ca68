"""Annotations in the browser: their routes, and the picture that many of them make."""
