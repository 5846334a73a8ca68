"""The page of one slide, its review, and the side-by-side view."""
