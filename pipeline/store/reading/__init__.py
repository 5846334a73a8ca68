"""Fast reads of a slide store."""
