"""A slide's result files, and checks of their plausibility."""
