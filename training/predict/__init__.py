"""Networks that only look at tiles."""
