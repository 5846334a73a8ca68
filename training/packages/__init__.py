"""Model packages: written, described, opened."""
