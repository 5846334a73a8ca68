"""Runs that the web app starts: processes of their own, which outlive it, and what they leave to be looked at."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
