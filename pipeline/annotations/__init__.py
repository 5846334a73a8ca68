"""Annotation files of other programs: one reader per format, and a writer of those of QuPath, ASAP and ImageScope."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
