"""The project's database: its tables, and a log in which each entry is chained to the one before."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
