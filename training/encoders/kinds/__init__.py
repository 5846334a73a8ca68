"""Networks of tile encoders: one file per origin."""
