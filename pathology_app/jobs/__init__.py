"""Runs that the web app starts: separate processes, which outlive it, and the files that they leave."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
