"""Model packages: writing, describing and opening them."""
