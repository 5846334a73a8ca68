"""The project's database: tables, and a log whose every entry is bound to the one before."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
