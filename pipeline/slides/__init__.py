"""Readers of scanned slides behind one `Slide` interface. Sites add their own (docs/reference/readers.md)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
