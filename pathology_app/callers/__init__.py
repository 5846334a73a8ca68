"""Callers of the app: a request's address, its host name, its cookies."""
