"""The tissue mask: detected, given, missing, made again."""
