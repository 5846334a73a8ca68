"""Declarations of routes, and their error responses."""
