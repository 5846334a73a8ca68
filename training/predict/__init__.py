"""Networks that only predict."""
