"""`gemslide study …`."""
