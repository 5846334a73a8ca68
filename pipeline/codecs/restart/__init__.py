"""Restart intervals of JPEG: put together, cut and padded without decoding."""
