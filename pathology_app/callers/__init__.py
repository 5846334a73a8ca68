"""Callers of the app: a request's address, the host name it asks for, its cookies."""
