"""The pages of studies and of their readings."""
