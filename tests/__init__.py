"""A regular package, because libraries that install a top-level `tests` would shadow a namespace package."""
