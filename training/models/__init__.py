"""Networks that can be cut into stages."""
