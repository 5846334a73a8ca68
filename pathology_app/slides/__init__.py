"""Open slides, and the facts shown about them."""
