"""A package, because others install a top-level `tests` too, and a plain folder would lose against it."""
