"""Multiple-instance networks: one output for all tiles of a slide or patient."""
