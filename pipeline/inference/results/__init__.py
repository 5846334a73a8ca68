"""A slide's results as files beside its store, and whether they can be true."""
