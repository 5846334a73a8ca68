"""Image codecs: the only parsers of JPEG and JPEG 2000, and the only calls to libraries that decode or encode."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
