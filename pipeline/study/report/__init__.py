"""A study's report: flow, quality, endpoints, failures, times, readers, versions; as a page, a PDF and tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
