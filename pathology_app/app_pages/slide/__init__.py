"""The page of one slide, its review, and slides side by side."""
