"""Tiles of a slide through a network, in batches: planned, read ahead, computed on one or more devices, journalled."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
