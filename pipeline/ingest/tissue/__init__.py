"""The tissue mask: detected, given, missing, rebuilt."""
