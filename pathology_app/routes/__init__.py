"""Declarations of routes, and their answers to errors."""
