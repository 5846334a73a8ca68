"""The levels of Hamamatsu NDPI files as tiles, without decoding."""
