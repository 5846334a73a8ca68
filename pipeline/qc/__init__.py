"""Quality control of slides: focus, pen, folds, bubbles and edges by cell; the slide's stain."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
