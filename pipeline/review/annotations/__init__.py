"""Annotations outside studies: drawing, saving, exchange and proof."""
