"""Code shared by every export format."""
