"""`gemslide plan …`."""
