"""One file per page: read, present, draw."""
