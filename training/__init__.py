"""The bundled GEMS engine, its models and its training loop. Imports nothing of the other packages."""
