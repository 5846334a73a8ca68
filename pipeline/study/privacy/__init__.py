"""Exports of a study: keyed pseudonyms, and the scan that stops an export that names anybody."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
