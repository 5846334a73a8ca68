"""A slide's report: saved views, counts, measurements and annotations on one page, as HTML and PDF."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
