"""Registration of two slides: the affine transform from one slide's pixels to another's, and how far to trust it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
